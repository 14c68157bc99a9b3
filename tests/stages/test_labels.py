"""Labels: by the answer checker, a judge, a revision, a teacher, episodes, and completions.

What each kind writes on the usual inputs is in every_stage.yaml; here is what its preset changes.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import stage_inputs
from option_server import serve
from ruamel.yaml import YAML
from stage_inputs import POOL, SEED, make_episode, write_answers

from stages import rows
from stages.engines import openai_endpoint
from stages.loops import step_labels
from stages.records import lines, pools
from stages.records.episodes import EPISODES
from stages.records.preferences import Preference, Revision, Verdict
from stages.records.problems import Demonstration
from stages.records.steps import PrefixCount, StepLabels
from stages.rows import DATA

TABLES = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
PAIRS = DATA / f"pairs/new/{SEED}"
STEPS = DATA / f"steps/new/{SEED}"
pytestmark = pytest.mark.usefixtures("stage_world")


def label(by, preset, on="pools/old", start="sft", **sections):
    """metrics.json of a row of `pairs`."""
    words = stage_inputs.make_words(f"label_{by}", on, start)
    stage_inputs.run_stage(f"label_{by}", words, preset, **sections)
    return stage_inputs.metrics(PAIRS)


def read_rows(name, kind, folder=PAIRS):
    return list(lines.read_lines(folder / f"{name}.jsonl", kind))


def read_pairs(side="train"):
    return read_rows(side, Preference)


def read_shown():
    return read_rows("demonstrations", Demonstration)


def test_flips_turn_pairs_to_learn_from_and_no_others():
    answers = dict.fromkeys("abcdefgh", "45")
    for side in pools.SIDES:
        write_answers(side, answers)
    label("verifier", {"max_pairs_per_problem": 2, "flip_percent": 50})
    assert [row.chosen for row in read_pairs()].count("#### 4") == 4
    assert {row.probability for row in read_pairs()} == {1.0}
    assert {row.chosen for row in read_pairs("heldout")} == {"#### 4"}
    write_answers("heldout", {"d": "5678"})  # no pair need be held out
    label("verifier", {"max_pairs_per_problem": 2})
    assert (len(read_pairs()), read_pairs("heldout")) == (len(answers), [])


@pytest.mark.parametrize(("limit", "num_each"), [(None, 3), (2, 2)])
def test_a_teacher_shows_its_completions_right_or_wrong_as_often_as_they_were_drawn(
    limit, num_each
):
    write_answers("train", {"a": "445", "b": "444"})
    metrics = label("teacher", {"max_samples_per_problem": limit})
    assert [row.id for row in read_shown()] == ["a"] * num_each + ["b"] * num_each
    drawn = ["#### 4", "#### 4", "#### 5"][:num_each]
    assert [row.completion for row in read_shown() if row.id == "a"] == drawn
    num_tokens = sum(len(row.completion_ids) for row in read_shown())
    assert metrics == {"problems": 2, "demonstrations": 2 * num_each, "tokens": num_tokens,
                       "teacher": "sft", "pool_policy": "sft"}  # fmt: skip
    model = stage_inputs.read_files(PAIRS / "model")
    assert model == stage_inputs.read_files(rows.locate_policy("sft", SEED))
    metrics = label("teacher", {"max_samples_per_problem": limit}, start="teacher")
    assert (metrics["teacher"], metrics["pool_policy"]) == ("teacher", "sft")


@pytest.mark.parametrize("case", TABLES["episodes"], ids=lambda case: case["it"])
def test_episodes_of_a_start_are_paired_by_what_they_were_paid(case):
    episodes = [
        make_episode(index, reward, start, (*ending, "done")[0])
        for start, played in case["starts"].items()
        for index, (reward, *ending) in enumerate(played)
    ]
    lines.write_lines(DATA / f"episodes/games/{SEED}" / EPISODES, episodes)
    metrics = label("episodes", {"max_pairs_per_start": 2}, "episodes/games")
    pairs = read_pairs()
    assert [[pair.chosen_ids[0], pair.rejected_ids[0]] for pair in pairs] == case["pairs"]
    assert metrics == {"starts": len(case["starts"]), "pairs": len(pairs)}
    # the policy wrote two of three tokens; the environment's stands before the second
    assert {(*pair.chosen_ids[1:], *pair.rejected_ids[1:]) for pair in pairs} == {(30, 30)}
    assert pairs[0].chosen_insertions == pairs[0].rejected_insertions == [[1, [20]]]


NOTHING = {
    "verifier": ({"max_pairs_per_problem": 2}, "problems_all_wrong"),
    "selection": ({"max_per_problem": 2}, "max_new_tokens"),
    "episodes": ({"max_pairs_per_start": 2}, "num_episodes"),
}


@pytest.mark.parametrize("by", NOTHING)
def test_where_there_is_nothing_to_learn_from_the_remedy_is_named(by):
    write_answers("train", {"a": "5678"})
    equal = [make_episode(i, 1.0) for i in range(2)]
    lines.write_lines(DATA / f"episodes/games/{SEED}" / EPISODES, equal)
    preset, mentions = NOTHING[by]
    with pytest.raises(ValueError, match=mentions):
        label(by, preset, "episodes/games" if by == "episodes" else "pools/old")
    assert not PAIRS.parent.exists()


RULE = {"labels": "soft", "min_option_mass": 0.0, "min_confidence": 0.0, "inconsistent": "keep",
        "clamp": None}  # fmt: skip
JUDGE = {
    "judge": {"kind": "policy", "max_prompt_tokens": 240}, "style": "short",
    "constitution": "correct", "reasoning": None, "max_pairs_per_problem": 3, "rule": RULE,
    "injection_pairs": 2,
}  # fmt: skip
ENDPOINT = {"kind": "endpoint", "model": "m", "revision": "2026-11", "api": "chat",
            "top_logprobs": 20}  # fmt: skip


@pytest.fixture
def server(monkeypatch):
    """An endpoint that prefers 4, with a favour for the first place; problems with 4 and others."""
    write_answers("train", dict.fromkeys("abcd", "4589"))
    write_answers("heldout", dict.fromkeys("ef", "4589"))
    with serve() as server:
        monkeypatch.setenv(openai_endpoint.URL, server.url)
        server.tokens = lambda message: (
            {"1": 0.8, "2": 0.1} if "1: #### 4" in message else {"1": 0.4, "2": 0.5}
        )
        yield server


def test_an_endpoint_judges_and_a_second_run_sends_it_nothing(server):
    preset = JUDGE | {"judge": ENDPOINT, "injection_pairs": 0}
    metrics = label("judge", preset, start="base")
    files, num_requests = stage_inputs.read_files(PAIRS), len(server.requests)
    assert label("judge", preset, start="base") == metrics
    assert stage_inputs.read_files(PAIRS) == files
    assert len(server.requests) == num_requests
    verdicts = read_rows("verdicts", Verdict)
    assert len(verdicts) == len(read_pairs()) + len(read_pairs("heldout"))
    assert metrics["train"]["agreement"]["averaged"]["value"] == 1.0
    assert metrics["generated_tokens"] == 2 * len(verdicts)  # counted, cached or not
    assert metrics["judge"] == ENDPOINT


REVISION = {"constitution": "correct", "style": "short", "max_per_problem": 2,
            "temperature": 1.0, "max_prompt_tokens": 200, "max_new_tokens": 40}  # fmt: skip


@pytest.mark.parametrize("num_rounds", [1, 2])
def test_the_last_revision_is_preferred_or_all_were_cut(num_rounds):
    preset = REVISION | {"num_rounds": num_rounds}
    metrics = label("revision", preset)
    triples = read_rows("triples", Revision)
    last = {(row.id, *row.revision_ids) for row in triples if row.round == num_rounds}
    pairs = [pair for side in pools.SIDES for pair in read_pairs(side)]
    assert len(pairs) == metrics["train"]["pairs"] + metrics["heldout"]["pairs"] > 0
    assert {(pair.id, *pair.chosen_ids) for pair in pairs} <= last
    num_drawn = sum(len(row.critique_ids) + len(row.revision_ids) for row in triples)
    assert metrics["generated_tokens"] == num_drawn
    with pytest.raises(ValueError, match="max_new_tokens"):
        label("revision", preset | {"max_new_tokens": 1})


# Of steps. The random model states no answer, so what it adds to "#### 9" comes out right.
RIGHT, ODD, WRONG = (
    "3 + 4 = 7\n7 + 2 = 9\n#### 9",
    "3 + 4 = 7\n#### 9\n7 + 2 = 9",
    "3 + 4 = 8\n8 + 2 = 10\n#### 10",
)
QUESTION = "Anna has 3 apples. She buys 4 more. She finds 2 more. How many apples now?"
COMPLETIONS = {
    "num_problems": None, "num_heldout_problems": 2, "max_solutions_per_problem": 2,
    "num_completions": 4, "temperature": 1.0, "separator": "\n", "label": "soft",
    "audit": {"thresholds": [0.5], "num_bootstrap": 100, "confidence": 0.95},
}  # fmt: skip


def write_solutions(question=QUESTION):
    """p0 to p5, held out p6 to p8: RIGHT twice (of p8 its answer alone once), then ODD or WRONG."""
    for side, numbers in {"train": range(6), "heldout": range(6, 9)}.items():
        prompts = [
            replace(stage_inputs.make_prompts("train")[0], id=f"p{n}", question=question,
                    prompt_ids=list(stage_inputs.encode(f"{n} {question}")), answer="9")
            for n in numbers
        ]  # fmt: skip
        drawn = [
            stage_inputs.make_completion(prompt.id, index, text)
            for n, prompt in zip(numbers, prompts, strict=True)
            for index, text in enumerate(
                (RIGHT, "#### 9" if n == 8 else RIGHT, ODD if n % 2 else WRONG)
            )
        ]
        stage_inputs.write_side(side, prompts, drawn)


def label_steps(**changes):
    words = stage_inputs.make_words("steps_completions", "pools/old")
    stage_inputs.run_stage("steps_completions", words, COMPLETIONS | changes)
    return stage_inputs.metrics(STEPS)


def read_solutions(side):
    return read_rows(side, StepLabels, STEPS)


def test_a_step_has_the_share_of_its_completions_that_are_right(monkeypatch):
    count, limits = step_labels.count_right, []

    class Brief:
        """In two tokens the random model cannot state another answer after the right one."""

        def __init__(self, sampler):
            self.sampler = sampler

        def sample(self, prompts, seeds, *, max_new_tokens, **settings):
            few = [min(2, limit) for limit in max_new_tokens]
            return self.sampler.sample(prompts, seeds, max_new_tokens=few, **settings)

    def count_briefly(sampler, decode, parts, config, limit, *rest, **settings):
        limits.append(limit)
        return count(Brief(sampler), decode, parts, config, limit, *rest, **settings)

    monkeypatch.setattr(step_labels, "count_right", count_briefly)
    write_solutions()
    metrics = label_steps()
    train, heldout = map(read_solutions, ("train", "heldout"))
    counts = read_rows("prefixes", PrefixCount, STEPS)
    by_prefix = {(count.id, *count.prefix_ids): count.num_right for count in counts}
    assert len(by_prefix) == len(counts)
    assert [(row.id, row.index) for row in train[:4]] == [
        ("p0", 0), ("p0", 2), ("p1", 0), ("p1", 2)]  # fmt: skip
    for row in [*train, *heldout[:4]]:
        prefix: list[int] = []
        for step_ids, share in zip(row.step_ids[:-1], row.labels[:-1], strict=True):
            prefix += step_ids
            assert share == by_prefix[row.id, *prefix] / 4
        assert row.labels[-1] == float(row.correct)
        assert row.num_completions == [4, 4, 0]
    stated = [row for row in train if row.steps[1].strip() == "#### 9"]
    assert [row.labels[1] for row in stated] == [1.0] * 3
    assert all(row.true_labels == [True, True, False] for row in stated)
    # RIGHT and ODD share their first step.
    numbers = [(metrics[side]["estimated_labels"], metrics[side]["completed_prefixes"])
               for side in pools.SIDES]  # fmt: skip
    assert numbers == [(24, 21), (8, 7)]
    assert metrics["generated_tokens"] == sum(count.generated_tokens for count in counts) > 0
    assert set(metrics["train"]["audit"]) == {"hard", "soft_0.5"}
    # Held out are all solutions to choose among, of which those of two problems are labelled.
    assert [(row.id, row.index, row.correct) for row in heldout[4:]] == [
        ("p6", 1, True), ("p7", 1, True), ("p8", 0, True), ("p8", 1, True), ("p8", 2, False),
    ]  # fmt: skip
    assert {(*set(row.labels), row.source) for row in heldout[4:]} == {(None, "none")}
    # A prefix is gone on with as far as the longest completion of the pool.
    drawn = [row for side in pools.SIDES for _, pool in pools.read_pools(POOL, SEED, side)
             for row in pool]  # fmt: skip
    assert limits == [max(len(row.completion_ids) for row in drawn)]
    label_steps(num_problems=2)
    assert read_solutions("train") == train[:4], "the first problems are the same alone"


def test_without_completions_the_labels_are_the_truth_and_no_model_is_read():
    write_solutions()
    (rows.locate_policy("sft", SEED) / "model.safetensors").unlink()
    metrics = label_steps(num_completions=0)
    solutions = read_solutions("train")
    assert all(row.labels == [float(label) for label in row.true_labels] for row in solutions)
    assert {tuple(row.labels) for row in solutions} == {
        (1.0,) * 3, (0.0,) * 3, (1.0, 1.0, 0.0)}  # fmt: skip
    assert (metrics["generated_tokens"], metrics["train"]["audit"]) == (0, {})
    assert (STEPS / "prefixes.jsonl").read_bytes() == b""


def test_of_a_problem_that_was_not_generated_there_is_no_truth():
    write_solutions("What is 3 + 4 + 2?")
    metrics = label_steps(num_completions=1)
    assert {row.true_labels for row in read_solutions("train")} == {None}
    assert (metrics["train"]["truly_right"], metrics["train"]["audit"]) == (None, {})
    with pytest.raises(ValueError, match="num_completions 0"):
        label_steps(num_completions=0)
