import pytest
from seed_runs import make_run
from tiny_checkpoints import load
from tiny_rollouts import decode, make_prompts, make_sampler

from stages.loops import candidates
from stages.loops.candidates import CandidatesConfig, Pool
from stages.records import lines
from stages.records.pools import Completion
from stages.runtime import journal

CONFIG = CandidatesConfig(num_samples=3, temperature=1.0, max_new_tokens=5)


def rows(prompts, seed=0, stream="test"):
    sampler, found = make_sampler(load("llama")), []
    for greedy in (True, False):
        pool = Pool(prompts=prompts, config=CONFIG, stream=stream, greedy=greedy)
        steps = candidates.sample(sampler, decode, pool, seed, "pool")
        found.append([row for step in steps for row in step.rows])
    return found


def test_a_greedy_completion_and_n_samples_of_each_problem_in_order():
    prompts = make_prompts(4)
    greedy, pool = rows(prompts)
    assert [(row.id, row.index) for row in greedy] == [(prompt.id, 0) for prompt in prompts]
    assert [(row.id, row.index) for row in pool] == [(p.id, i) for p in prompts for i in range(3)]
    assert all(row.completion == decode(row.completion_ids) for row in pool)


def test_completions_do_not_depend_on_the_parts_that_the_problems_come_in(monkeypatch):
    prompts = make_prompts(4)
    at_once = rows(prompts)
    monkeypatch.setattr(candidates, "CHUNK", 1)
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
        "test": Pool(prompts=prompts, config=CONFIG, stream="test"),
        "test_greedy": Pool(prompts=prompts, config=CONFIG, stream="test", greedy=True),
    }
    monkeypatch.setattr(candidates, "CHUNK", 3)
    sampler = make_sampler(load("llama"))
    metrics = candidates.write(pools, sampler, decode, {"parameters": 7}, run)
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
    assert candidates.longest(pools.values()) == 5 + 5, "a prompt of 5 tokens and 5 more"
