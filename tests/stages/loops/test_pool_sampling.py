from dataclasses import replace

import pytest
from seed_runs import make_run
from tiny_checkpoints import load
from tiny_rollouts import decode, make_prompts, make_sampler

from stages.loops import pool_sampling
from stages.loops.pool_sampling import PoolRequest, PoolSamplingConfig
from stages.loops.work import Step
from stages.records import lines
from stages.records.pools import Completion
from stages.runtime import journal

CONFIG = PoolSamplingConfig(num_samples=3, temperature=1.0, max_new_tokens=5)


def rows(prompts, seed=0, stream="test"):
    sampler, result = make_sampler(load("llama")), []
    for greedy in (True, False):
        pool = PoolRequest(prompts=prompts, config=CONFIG, stream=stream, greedy=greedy)
        steps = pool_sampling.sample(sampler, decode, pool, seed, "pool")
        result.append([row for step in steps for row in step.rows])
    return result


def test_a_greedy_completion_and_n_samples_of_each_problem_in_order():
    prompts = make_prompts(4)
    greedy, pool = rows(prompts)
    assert [(row.id, row.index) for row in greedy] == [(prompt.id, 0) for prompt in prompts]
    assert [(row.id, row.index) for row in pool] == [(p.id, i) for p in prompts for i in range(3)]
    assert all(row.completion == decode(row.completion_ids) for row in pool)


def test_completions_do_not_depend_on_the_parts_that_the_problems_come_in(monkeypatch):
    prompts = make_prompts(4)
    at_once = rows(prompts)
    monkeypatch.setattr(pool_sampling, "CHUNK", 1)
    for whole, parted in zip(at_once, rows(prompts), strict=True):
        assert [row.completion_ids for row in whole] == [row.completion_ids for row in parted]


def test_another_seed_or_stream_draws_other_samples_and_the_same_greedy_completion():
    prompts = make_prompts(4)
    greedy, pool = rows(prompts)
    for changed in ({"seed": 1}, {"stream": "dev"}):
        same, other = rows(prompts, **changed)
        assert [row.completion_ids for row in same] == [row.completion_ids for row in greedy]
        assert [row.completion_ids for row in other] != [row.completion_ids for row in pool]


@pytest.fixture
def run(tmp_path):
    with journal.writing(tmp_path / "journal.jsonl") as log:
        (tmp_path / "0").mkdir()
        yield make_run(folder=tmp_path, log=log, outputs=(tmp_path / "0",))


def test_pools_are_written_with_their_numbers_in_any_parts(run, tmp_path, monkeypatch):
    prompts = make_prompts(4)
    pools = {
        "test": PoolRequest(prompts=prompts, config=CONFIG, stream="test"),
        "test_greedy": PoolRequest(prompts=prompts, config=CONFIG, stream="test", greedy=True),
    }
    monkeypatch.setattr(pool_sampling, "CHUNK", 3)
    sampler = make_sampler(load("llama"))
    metrics = pool_sampling.write_pools(pools, sampler, decode, {"parameters": 7}, run)
    greedy, pool = rows(prompts)
    assert list(lines.read_lines(tmp_path / "0/test.jsonl", Completion)) == pool
    assert list(lines.read_lines(tmp_path / "0/test_greedy.jsonl", Completion)) == greedy
    number = sum(len(row.completion_ids) for row in pool)
    assert metrics["test"] == {
        "problems": 4,
        "completions": 12,
        "tokens": number,
        "mean_tokens": number / 12,
        "truncated": sum(row.finish_reason == "length" for row in pool) / 12,
    }
    assert metrics["generated_tokens"] == number + metrics["test_greedy"]["tokens"]
    assert metrics["work"]["policy"]["sampled"]["outputs"] == metrics["generated_tokens"]
    assert pool_sampling.max_length(pools.values()) == 5 + 5, "a prompt of 5 tokens and 5 more"


def test_what_is_watched_and_shown_while_sampling_is_counted_by_hand(run, monkeypatch, caplog):
    prompts = [replace(prompt, answer="7") for prompt in make_prompts(2)]
    pool = PoolRequest(prompts=prompts, config=CONFIG, stream="test")
    texts = ["so 7", "17", "#### 7.", "7 or 8", "1 + 6 = 7", "-7"]  # right: 0, 2 and 4
    completions = [
        Completion(
            id=f"p{i // 3}", index=i % 3, completion=text, completion_ids=[1] * (i + 1), seed=0,
            logprob_sum=0.0, finish_reason="length" if i == 1 else "stop",
        )
        for i, text in enumerate(texts)
    ]  # fmt: skip
    steps = [Step(index=0, metrics={}, rows=completions)]
    monkeypatch.setenv(pool_sampling.SHOWN, "1")
    with caplog.at_level("INFO"):
        assert list(pool_sampling.track_pool(run, "test", pool, steps)) == steps
    snapshot = run.progress.snapshot()
    assert (snapshot.label, snapshot.unit) == ("test", "completions")
    assert (snapshot.done, snapshot.total) == (6, 6)
    assert snapshot.numbers == {"right ending": 3 / 6, "length": 21 / 6, "truncated": 1 / 6}
    assert caplog.messages == ["seed 0, test, p0:  (gold answer 7)\nso 7"]


def test_an_answer_of_another_number_or_word_is_no_ending():
    for text, answer in [("so \\boxed{7}.", "7"), ("1,234", "1,234"), ("(B)", "B")]:
        assert pool_sampling.ends_in(text, answer)
    for text, answer in [("1,234", "234"), ("0.7", "7"), ("7 apples", "7"), ("AB", "B")]:
        assert not pool_sampling.ends_in(text, answer)
