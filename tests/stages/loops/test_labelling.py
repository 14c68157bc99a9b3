"""What policies write for others to learn from: pools, revisions, step labels, shown solutions."""

from collections import defaultdict
from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from seed_runs import make_run
from tiny_checkpoints import CPU, EOS, compute, load
from tiny_rollouts import decode, make_prompts, make_sampler

from stages.algorithms.statistics import intervals
from stages.engines import transformers
from stages.loops import pool_sampling, revision, step_labels, teacher
from stages.loops.pool_sampling import PoolRequest, PoolSamplingConfig
from stages.loops.revision import RevisionConfig
from stages.loops.step_labels import StepLabelsConfig
from stages.models import model_tokenizer, policy, prompting
from stages.models.row_policy import TinyConfig, build_tiny
from stages.records import lines
from stages.records.pools import Completion
from stages.records.problems import Demonstration, Prompt
from stages.rewards.feedback import prompts as feedback
from stages.rewards.feedback.principles import CONSTITUTIONS
from stages.rewards.feedback.revisions import DraftAnswer
from stages.runtime import journal
from stages.sampler import Sample

PROMPTS = make_prompts(4)
SAMPLER = make_sampler(load("llama"))

# --- Pools

POOL = PoolSamplingConfig(num_samples=3, temperature=1.0, max_new_tokens=5)


def request(greedy=False, stream="test", prompts=PROMPTS):
    return PoolRequest(prompts=prompts, config=POOL, stream=stream, greedy=greedy)


def draw_pool(greedy=False, seed=0, stream="test", first=0):
    pool = request(greedy, stream)
    steps = pool_sampling.sample(SAMPLER, decode, pool, seed, "pool", first)
    return [row for step in steps for row in step.rows]


def token_ids(rows):
    return [row.completion_ids for row in rows]


def test_a_pool_has_n_samples_of_each_problem_or_the_greedy_one_whatever_parts_it_comes_in(
    monkeypatch,
):
    greedy, pool = draw_pool(greedy=True), draw_pool()
    assert [(row.id, row.index) for row in greedy] == [(prompt.id, 0) for prompt in PROMPTS]
    assert [(row.id, row.index) for row in pool] == [(p.id, i) for p in PROMPTS for i in range(3)]
    assert all(row.completion == decode(row.completion_ids) for row in pool)
    for changes in ({"seed": 1}, {"stream": "dev"}):
        assert token_ids(draw_pool(greedy=True, **changes)) == token_ids(greedy)
        assert token_ids(draw_pool(**changes)) != token_ids(pool)
    monkeypatch.setattr(pool_sampling, "CHUNK", 1)
    assert token_ids(draw_pool()) == token_ids(pool)
    assert [row.id for row in draw_pool(first=3)] == ["p3"] * 3


@pytest.fixture
def run(tmp_path):
    with journal.writing(tmp_path / "journal.jsonl") as log:
        (tmp_path / "0").mkdir()
        yield make_run(folder=tmp_path, log=log, outputs=(tmp_path / "0",))


def test_pools_are_written_with_their_numbers_and_some_are_shown(
    run, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv(pool_sampling.SHOWN, "1")
    caplog.set_level("INFO")
    pools = {"test": request(), "test_greedy": request(greedy=True)}
    monkeypatch.setattr(pool_sampling, "CHUNK", 3)
    pool, greedy = draw_pool(), draw_pool(greedy=True)
    metrics = pool_sampling.write_pools(pools, SAMPLER, decode, {"parameters": 7}, run)
    assert list(lines.read_lines(tmp_path / "0/test.jsonl", Completion)) == pool
    assert list(lines.read_lines(tmp_path / "0/test_greedy.jsonl", Completion)) == greedy
    number = sum(len(row.completion_ids) for row in pool)
    assert metrics["test"] == {
        "problems": 4, "completions": 12, "tokens": number, "mean_tokens": number / 12,
        "truncated": sum(row.finish_reason == "length" for row in pool) / 12,
    }  # fmt: skip
    assert metrics["generated_tokens"] == number + metrics["test_greedy"]["tokens"]
    assert metrics["work"]["policy"]["sampled"]["outputs"] == metrics["generated_tokens"]
    assert pool_sampling.max_length(pools.values()) == 5 + 5
    shown = [pool[0], pool[9], greedy[0], greedy[3]]  # the first of each part
    for row, message in zip(shown, caplog.messages, strict=True):
        assert f"{row.id}: " in message
        assert message.endswith(row.completion)
    snapshot = run.progress.snapshot()
    assert (snapshot.done, snapshot.total) == (4, 4)
    assert snapshot.numbers.keys() == {"length", "truncated"}


# --- Step labels


def decode_parity(ids):
    """Every text states as its answer whether its last token is even, where a prefix has a 3."""
    return f"#### {ids[-1] % 2}" if 3 in ids else "none"


SOLVED = [replace(prompt, answer="0") for prompt in make_prompts(5)]
PREFIXES = [(prompt, ids) for prompt in SOLVED for ids in ((3,), (3, 4), (5, 3, 7))]


def count(parts, seed=0, start=0, sampler=SAMPLER, **changes):
    content = {
        "num_problems": None, "num_heldout_problems": None, "max_solutions_per_problem": 1,
        "num_completions": 4, "temperature": 1.0, "separator": "\n", "label": "hard",
    }  # fmt: skip
    config = StepLabelsConfig(**content | changes)
    return list(step_labels.count_right(sampler, decode_parity, parts, config, 6, seed, start))


def rows_of(steps):
    return [row for step in steps for row in step.rows]


def test_counts_are_of_completions_of_prompt_and_prefix_within_the_limit_of_a_whole_solution():
    seen = []

    def sample(prompts, seeds, **settings):
        seen.append((prompts, settings))
        endings = ([number] * 2 for number in range(3))
        return [
            [Sample(token_ids=ids, logprobs=[0.0] * 2, finish_reason="stop") for ids in endings]
        ]

    prompt = replace(SOLVED[0], prompt_ids=[8, 9])
    (step,) = count([[(prompt, (3,))]], sampler=SimpleNamespace(sample=sample))
    settings = {"num_samples": 4, "temperature": 1.0, "max_new_tokens": [5]}
    assert seen == [([[8, 9, 3]], settings)]
    (row,) = step.rows
    assert (row.num_completions, row.num_right, row.generated_tokens) == (3, 2, 6)
    bounds = intervals.wilson_interval(2, 3, confidence=0.95)
    assert (row.low, row.high) == pytest.approx(bounds, abs=1e-6)
    assert step.metrics == {
        "tokens/generated": 6, "completions/right": pytest.approx(2 / 3), "prefixes/none_right": 0
    }  # fmt: skip
    passes = step_labels.summarise_passes([[(prompt, (3,))]], [row], {"parameters": 7})
    assert passes["work"]["policy"]["sampled"] == {"positions": 3 + 6 - 3, "outputs": 6}


def test_counts_depend_on_seed_problem_and_prefix_alone():
    whole = {(row.id, *row.prefix_ids): row for row in rows_of(count([PREFIXES]))}
    assert len({row.num_right for row in whole.values()}) > 1
    parts = [PREFIXES[:5], PREFIXES[5:9], PREFIXES[9:]]
    for some in (parts, [PREFIXES[::-1]], [PREFIXES[7:9]]):
        assert all(row == whole[row.id, *row.prefix_ids] for row in rows_of(count(some)))
    assert rows_of(count(parts, start=1)) == rows_of(count(parts))[5:]
    assert rows_of(count([PREFIXES], seed=1)) != list(whole.values())
    twins = [(SOLVED[0], (3,)), (replace(SOLVED[0], id="twin"), (3,))]
    first, second = rows_of(count([twins], num_completions=32))
    assert first.generated_tokens != second.generated_tokens


def test_equal_prefixes_of_a_problem_are_completed_once(monkeypatch):
    monkeypatch.setattr(step_labels, "CHUNK", 4)
    parts = step_labels.chunk_prefixes([*PREFIXES, *PREFIXES[::-1]])
    assert [len(part) for part in parts] == [4, 4, 4, 3]
    assert [item for part in parts for item in part] == PREFIXES
    longest = max(len(prompt.prompt_ids) for prompt in SOLVED)
    assert step_labels.max_length(parts, 6) == longest + 6
    assert step_labels.max_length([], 6) == 6


# --- Critiques and revisions

WORDS = model_tokenizer.train_tokenizer(
    ["Check result: Anna has 3 apples.\n> #### 3\nCritique:\n"] * 2, 700
)
TINY = TinyConfig(
    hidden_size=16, num_layers=1, num_heads=2, intermediate_size=32, max_length=256, vocab_size=700
)
DECODE = model_tokenizer.make_decode(WORDS)
ENCODE = partial(prompting.tokenize_messages, tokenizer=WORDS)


def make_reviser():
    torch.manual_seed(0)
    model = policy.prepare_model(build_tiny(TINY, WORDS, 0), compute(), CPU)
    return transformers.make_sampler(model, WORDS, max_batch=64)


REVISER = make_reviser()


def answer(number, text=None):
    name = f"p{number // 2}"
    question = f"Anna has {number // 2} apples."
    prompt = Prompt(id=name, task="solve", question=question, prompt="", prompt_ids=[5], answer="")
    completion = Completion(
        id=name, index=number % 2, completion=text or f"#### {number}", completion_ids=[number, 1],
        logprob_sum=-1.0, finish_reason="stop", seed=0,
    )  # fmt: skip
    return DraftAnswer(prompt, completion)


ANSWERS = [answer(number) for number in range(8)]


def revise(answers=ANSWERS, seed=0, split="train", **changes):
    settings = {
        "constitution": "correct", "style": "short", "num_rounds": 3, "max_per_problem": 2,
        "temperature": 1.0, "max_prompt_tokens": 200, "max_new_tokens": 6,
    }  # fmt: skip
    config = RevisionConfig(**settings | changes)
    return list(revision.rounds(REVISER, DECODE, ENCODE, answers, config, seed, split))


def test_each_round_revises_the_last_rounds_revision_and_keeps_the_tokens():
    steps = revise()
    assert [step.index for step in steps] == [0, 1, 2]
    assert [row.original for row in steps[0].rows] == [a.completion.completion for a in ANSWERS]
    for before, after in pairwise(steps):
        assert [row.revision for row in before.rows] == [row.original for row in after.rows]
        assert {row.round for row in after.rows} == {after.index + 1}
    for step in steps:
        names = [(a.completion.id, a.completion.index) for a in ANSWERS]
        assert [(row.id, row.index) for row in step.rows] == names
        for row in step.rows:
            assert row.revision == DECODE(row.revision_ids)
            assert row.critique == DECODE(row.critique_ids)
            ended = row.revision_ids[-1] == WORDS.eos_token_id
            assert (row.revision_finish == "stop") == ended
        drawn = sum(len(row.critique_ids) + len(row.revision_ids) for row in step.rows)
        assert step.metrics["tokens/generated"] == drawn


@pytest.mark.parametrize("style", ["short", "full"])
def test_the_requests_are_the_critique_and_then_the_revision_with_it(style):
    """Greedy decoding, requested by hand with the rows' own principle, answer and critique."""

    def ask(message):
        settings = {"num_samples": 1, "temperature": 0.0, "max_new_tokens": 6}
        ((sample,),) = REVISER.sample(ENCODE([message]), [0], **settings)
        return sample.token_ids

    settings = {"temperature": 0.0, "num_rounds": 1, "style": style, "max_prompt_tokens": 250}
    (step,) = revise(ANSWERS[::4], **settings)
    principles = {principle.name: principle for principle in CONSTITUTIONS["correct"]}
    questions = {a.prompt.id: a.prompt.question for a in ANSWERS}
    for row in step.rows:
        texts, principle = (questions[row.id], row.original), principles[row.principle]
        assert ask(feedback.critique_message(style, *texts, principle)) == row.critique_ids
        message = feedback.revision_message(style, *texts, row.critique, principle)
        assert ask(message) == row.revision_ids
        assert row.version == feedback.REVISION_VERSIONS[style]


def test_an_answers_rounds_depend_on_seed_split_problem_and_round_alone():
    rows = rows_of(revise())
    assert rows_of(revise(ANSWERS[3:4])) == [r for r in rows if (r.id, r.index) == ("p1", 1)]
    assert {row.principle for row in rows} == {p.name for p in CONSTITUTIONS["correct"]}
    principles = defaultdict(set)
    for row in rows:
        principles[row.id, row.index].add(row.principle)
    assert sum(len(each) > 1 for each in principles.values()) > 4
    for changes in ({"seed": 1}, {"split": "heldout"}):
        assert [r.revision for r in rows_of(revise(**changes))] != [row.revision for row in rows]
    harmless = {row.principle for row in rows_of(revise(constitution="harmless"))}
    assert harmless <= {principle.name for principle in CONSTITUTIONS["harmless"]}


def test_an_answer_whose_request_is_too_long_is_left_out_from_then_on():
    long = answer(0, "3 + 4 = 7\n" * 40)
    result = revise([long, *ANSWERS[2:]])
    assert [len(step.rows) for step in result] == [6, 6, 6]
    assert [row.revision for row in result[2].rows] == [r.revision for r in revise()[2].rows[2:]]
    assert [step.rows for step in revise([long])] == [[], [], []]


# --- Solutions that a teacher is shown


def make_solution(name, completion, task="solve"):
    return Demonstration(
        id=name, task=task, prompt="", prompt_ids=[9, 5, 6], completion=completion,
        completion_ids=[7, EOS],
    )  # fmt: skip


def test_right_solutions_of_the_same_problem_are_shown_before_it_is_asked_again(caplog):
    prompts = [replace(PROMPTS[0], id=name, prompt_ids=[9, 5, 6], answer="4")
               for name in ("right", "wrong", "none")]  # fmt: skip
    rows = [make_solution("right", "#### 4"), make_solution("wrong", "#### 5"),
            make_solution("none", "#### 4", task="judge")]  # fmt: skip
    shown = {"right": [9, 5, 6, 7, EOS, 9, 5, 6]}
    assert teacher.show_solutions(prompts, rows, None, None) == shown
    assert teacher.show_solutions(prompts, rows, None, 8) == shown
    with pytest.raises(ValueError, match="fit its positions"):
        teacher.show_solutions(prompts, rows, None, 7)
    assert "1 prompts are left out" in caplog.text
    # A second begin-of-sequence token is none.
    assert teacher.show_solutions(prompts, rows, 9, 7) == {"right": [9, 5, 6, 7, EOS, 5, 6]}
    without_gold = [replace(prompts[1], answer=None)]
    assert set(teacher.show_solutions(without_gold, rows, None, None)) == {"wrong"}
    with pytest.raises(ValueError, match="demonstrations"):
        teacher.show_solutions(prompts[1:], rows, None, None)
