"""Texts, tokens and operations of every stage of a small plan, by hand.

Two seeds; 50 train, 40 preference, 10 dev and 20 test problems; demonstrations of 30 and 20 tokens.
A new entry point is a row of WORK, and of LENGTHS if its texts have other limits.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace as Section

import presets
import pytest

from stages.algorithms.flops import Matrices
from stages.config import PRESETS_PATH, read_yaml
from stages.planning import jobs
from stages.planning.jobs import (
    Data,
    Plan,
    Stage,
    count_completions,
    count_starts,
    find_environment,
    list_scorers,
    max_lengths,
)
from stages.records.problems import Demonstration, Prompt
from stages.sources.data_summary import DataSummary

ROOT = Path(__file__).parents[3]
SHOWN = Demonstration(id="a", task="solve", prompt="", prompt_ids=[5] * 30, completion="",
    completion_ids=[6] * 20)  # fmt: skip
DATA = Data(
    prompts={"train": 50, "preference": 40, "dev": 10, "test": 20}, demonstrations=50, prompt=30.0,
    completion=20.0, completion_lines=3.5, longest=(30, 20), example=SHOWN,
)  # fmt: skip
PRESETS = read_yaml(ROOT / PRESETS_PATH)
PRESETS |= {
    "people": {"max_tokens": 70}, "two": {"members": 2}, "few": {"max_samples_per_problem": 2},
    "mine": {"starts": "prompts", "max_turns": 2, "max_turn_tokens": 10, "num_episodes": 3},
    "game": {**PRESETS["game"], "max_tokens": 90, "num_episodes": 5},
    "revision": {**PRESETS["revision"], "max_new_tokens": 90, "max_prompt_tokens": 150},
    "judge": {**PRESETS["judge"], "max_pairs_per_problem": 3},
    "verifier": {**PRESETS["verifier"], "max_pairs_per_problem": 2},
}  # fmt: skip
SAMPLES = {"train": 10, "preference": 4, "heldout": 5, "dev": 6, "test": 16}
LIMITS = {"train": 100, "preference": 40, "heldout": 50, "dev": 60, "test": 45}
CONTENT = {
    "seeds": [0, 1], "compute": {"max_batch": 64},
    "temperatures": {"tried": [0.25, 0.5], "num_samples": 3},
    "sampling": {
        split: {"max_new_tokens": LIMITS[split], "num_samples": SAMPLES[split]} for split in LIMITS
    },
}  # fmt: skip
OWN = {"by": "own", "on": "own/guess_number"}
TABLES = {
    "policies": {"sft": {}, "grpo": {}},
    "pools": {"sft": {"split": "preference"}, "own": {"split": "train"}},
    "pairs": {
        "verifier": {"by": "verifier", "preset": "verifier", "on": "pools/sft"},
        "own": {"by": "verifier", "preset": "verifier", "on": "pools/own"},
        "judge": {"by": "judge", "preset": "judge", "on": "pools/sft"},
        "taught": {"by": "teacher", "preset": "teacher", "on": "pools/sft"},
        "few": {"by": "teacher", "preset": "few", "on": "pools/sft"},
        "revised": {"by": "revision", "preset": "revision", "on": "pools/sft"},
        "people": {"by": "people", "preset": "people", "on": "raw/people.jsonl"},
    },
    "steps": {"sft": {"by": "completions", "preset": "completions", "on": "pools/sft"}},
    "rewards": {
        "preference": {"by": "preference", "preset": "two", "on": "pairs/verifier"},
        "outcome": {"by": "outcome", "preset": "outcome", "on": "pools/sft"},
        "process": {"by": "process", "preset": "process", "on": "steps/sft"},
        "rule": {"by": "rule", "preset": "rule", "on": "prompts"},
    },
    "environments": {name: {**OWN, "preset": name} for name in ("game", "mine")},
    "episodes": {"demos": {"by": "script", "on": "environments/game", "split": "train"}},
}  # fmt: skip
PLAN = Plan(content=CONTENT, presets=PRESETS, rows=TABLES, data=DATA)


def stage(entry_point, on="", *, words=None, **config):
    words = {"on": on, "from": "sft", "split": "train"} | (words or {})
    return Stage(name="x@y", entry_point=entry_point, words=words, config=Section(**config))


# --- the longest texts
JUDGE = Section(kind="policy", max_prompt_tokens=200)
LENGTHS = [
    # entry point, what it is on, its config, and tokens of the longest prompt and completion
    ("train_sft", "demonstrations", {}, (30, 20)),
    ("train_sft", "pairs/revised", {}, (30, 90)),
    ("train_sft", "episodes/demos", {}, (30, 60)),
    ("pool", "", {}, (30, 100)),
    ("sample", "", {}, (30, 60)),
    ("reward_outcome", "pools/sft", {}, (30, 50)),  # its held-out half may be longer
    ("reward_outcome", "pools/own", {}, (30, 100)),
    ("train_dpo", "pairs/own", {}, (30, 100)),
    ("train_dpo", "pairs/revised", {}, (30, 90)),
    ("reward_preference", "pairs/people", {}, (30, 40)),  # 70 together
    ("reward_process", "steps/sft", {}, (30, 50)),
    ("steps_completions", "pools/sft", {}, (30, 50)),
    ("train_grpo", "environments/game", {}, (30, 60)),  # 90 together
    ("play_policy", "environments/game", {}, (30, 60)),
    ("train_grpo", "", {"grpo": Section(max_new_tokens=7)}, (30, 7)),
    ("train_ppo", "", {"ppo": Section(max_new_tokens=8)}, (30, 8)),
    ("label_revision", "pools/sft", {"preset": Section(max_prompt_tokens=150, max_new_tokens=90)},
     (150, 90)),
    ("label_judge", "pools/sft", {"preset": Section(judge=JUDGE, reasoning=None)}, (200, 1)),
    ("label_judge", "pools/sft",
     {"preset": Section(judge=JUDGE, reasoning=Section(max_new_tokens=64))}, (200, 65)),
]  # fmt: skip


@pytest.mark.parametrize(("entry_point", "on", "config", "expected"), LENGTHS)
def test_texts_are_as_long_as_those_that_made_them(entry_point, on, config, expected):
    assert max_lengths(stage(entry_point, on, **config), PLAN) == expected


def test_starts_and_completions_by_hand():
    game, mine = (find_environment(stage("train_grpo", f"environments/{name}"), PLAN)
        for name in ("game", "mine"))  # fmt: skip
    assert (count_starts(game, "train", PLAN), count_starts(mine, "dev", PLAN)) == (512, 10)
    assert count_completions(stage("reward_outcome", "pools/own"), PLAN) == 10
    assert list_scorers("rewards/process", PLAN) == ("process",)


# --- work: of 100 numbers of the body, 10 of the output matrix
MODEL = Matrices(body=100, output=10, trained_body=100, trained_output=10)


def passes(times, positions, outputs):
    """Operations of a forward pass of two seeds; a backward pass has twice as many."""
    return 2 * 2 * times * (100 * positions + 10 * outputs)


def sft(teacher=None):
    preset = Section(num_demonstrations=None, teacher=teacher, override=lambda sizes: sizes)
    return {"preset": preset, "sft": Section(num_epochs=3)}


DRAWN = Section(num_steps=3, prompts_per_step=5, completions_per_prompt=4, max_new_tokens=25)


def online(name, **changes):
    return {"preset": presets.method(name, **changes), "grpo": DRAWN}


ONE = {"num_epochs": 1}
PPO = {"preset": presets.method("ppo_instructgpt", num_epochs=2), "ppo": DRAWN}
SILENT = Section(judge=JUDGE, style="full", constitution="none", reasoning=None,
    max_pairs_per_problem=3, injection_pairs=24)  # fmt: skip
THINKING = Section(**vars(SILENT) | {"reasoning": Section(max_new_tokens=50)})
GRPO = {"words": {"train": "grpo"}}
READ = passes(15, 30 + 80, 80)
"""15 prompts with 4 completions of 20 tokens each."""
REQUESTS = 2 * (3 * 40 + 3 * 10 + 12 * 24)
"""Both orders of 3 pairs of 40 problems and 10 of dev, and of 11 attacks and a control on 24."""
PREFIXES = 14 * 2 * 2.5
"""4 problems and 10 of dev, 2 solutions of 3.5 lines; the last is followed by nothing."""
NOTHING = {"tokens": 0, "forward": 0, "sampled": 0, "trained": 0, "steps": 0}
WORK = {
    # entry point, on, config; expected numbers
    "demonstrations": ("train_sft", "", sft(), {
        "tokens": 2 * 3 * 50 * 20, "trained": 3 * passes(150, 50, 20), "forward": 0}),
    "all_of_a_teacher": ("train_sft", "pairs/taught", sft({}), {
        "tokens": 2 * 3 * 40 * 4 * 20, "trained": 3 * passes(480, 50, 20),
        "forward": passes(480, 50, 20)}),
    "few_of_a_teacher": ("train_sft", "pairs/few", sft({}), {"tokens": 2 * 3 * 40 * 2 * 20}),
    # Half of the problems have right and wrong completions.
    "pairs": ("train_dpo", "pairs/verifier", {"dpo": Section(**ONE)}, {
        "tokens": 2 * 0.5 * 2 * 40 * 40, "trained": 3 * passes(40, 70, 40),
        "forward": passes(40, 70, 40)}),
    "judged_pairs": ("train_dpo", "pairs/judge", {"dpo": Section(**ONE)}, {
        "tokens": 2 * 3 * 40 * 40}),
    "reward_pairs": ("reward_preference", "pairs/verifier", {"preset": Section(members=2, **ONE)}, {
        "tokens": 2 * 2 * 40 * 40, "trained": 3 * passes(80, 70, 0), "forward": 0}),
    "outcomes": ("reward_outcome", "pools/sft",
        {"preset": Section(max_per_problem=3, one_class_weight=0.0, **ONE)}, {
        "tokens": 2 * 20 * 3 * 20, "trained": 3 * passes(20, 30 + 60, 0)}),
    "outcomes_of_all": ("reward_outcome", "pools/sft",
        {"preset": Section(max_per_problem=9, one_class_weight=0.1, **ONE)}, {
        "tokens": 2 * 40 * 4 * 20}),
    "process": ("reward_process", "steps/sft", {"preset": Section(**ONE)}, {
        "tokens": 2 * 40 * PRESETS["completions"]["max_solutions_per_problem"] * 20}),
    # Prompts before sampling, all of it again by the reference; 20 rows are one batch.
    "grpo": ("train_grpo", "rewards/rule", {**online("grpo_deepseekmath"), **GRPO}, {
        "tokens": 2 * 15 * 80 * 2, "sampled": passes(15, 80, 80), "trained": 3 * READ,
        "forward": passes(15, 30, 0) + READ, "steps": 2 * 3 * 25}),
    # No reference; the old policy, which mini-batches move away from.
    "mini_batches": ("train_grpo", "rewards/rule", {**online("dr_grpo"), **GRPO}, {
        "forward": passes(15, 30, 0) + READ}),
    "teacher": ("train_grpo", "policies/grpo", {**online("opd"), **GRPO}, {
        "forward": passes(15, 30, 0) + READ}),
    "shown": ("train_grpo", "demonstrations", {**online("self_distillation"), **GRPO}, {
        "forward": passes(15, 30, 0) + READ}),
    # The reference, and the policy that moves on before it learns.
    "stale": ("train_grpo", "rewards/rule", {**online("rloo", staleness=2), **GRPO}, {
        "forward": passes(15, 30, 0) + 2 * READ}),
    "ppo": ("train_ppo", "rewards/preference", {**PPO, "words": {"train": "ppo"}}, {
        "tokens": 2 * 15 * 80 * 3, "trained": 2 * 3 * (READ + passes(15, 110, 0)),
        # the reference, the old policy, a value model and two reward models
        "forward": passes(15, 30, 0) + 2 * READ + 3 * passes(15, 110, 0)}),
    "pool": ("pool", "", {"words": {"split": "preference"}}, {
        "tokens": 2 * 20 * (40 * 4 + 10 * 5), "forward": passes(50, 30, 0),
        "sampled": passes(1, 20, 20) * (40 * 4 + 10 * 5), "trained": 0}),
    # 16 and 6 as sampled, the greedy one, and 3 at each of two temperatures; batches of 64 rows
    # hold 4 test or 10 dev problems, and all of everything else.
    "sample": ("sample", "", {"words": {"split": "test"}}, {
        "tokens": 2 * 20 * (20 * (16 + 1 + 6) + 10 * (6 + 1 + 6)),
        "steps": 2 * ((5 + 1 + 2) * 45 + (1 + 1 + 2) * 60)}),
    # Turns of 10 tokens, half as many as allowed; one batch of 60 rows, two turns.
    "episodes": ("play_policy", "environments/mine", {"words": {"split": "test"}}, {
        "tokens": 2 * 20 * 3 * 10, "sampled": passes(20, 30, 30), "forward": passes(20, 30, 0),
        "steps": 2 * 2 * 10}),
    # 70 prefixes, of which 12 fit into a batch.
    "steps": ("steps_completions", "pools/sft", {"preset": Section(
        num_problems=4, max_solutions_per_problem=2, num_completions=5)}, {
        "tokens": 2 * PREFIXES * 5 * 10, "forward": passes(PREFIXES, 40, 0), "steps": 2 * 6 * 40}),
    "known_steps": ("steps_completions", "pools/sft", {"preset": Section(
        num_problems=4, max_solutions_per_problem=2, num_completions=0)}, NOTHING),
    "judge": ("label_judge", "pools/sft", {"preset": SILENT}, {"forward": passes(REQUESTS, 90, 1)}),
    "thinking": ("label_judge", "pools/sft", {"preset": THINKING}, {
        "tokens": 2 * REQUESTS * 50, "steps": 2 * -(-REQUESTS // 64) * 50,
        "forward": passes(REQUESTS, 90, 0)}),
    "endpoint": ("label_judge", "pools/sft",
        {"preset": Section(judge=Section(kind="endpoint"), max_pairs_per_problem=3)}, NOTHING),
    # A rule is no model, an ensemble of two is two.
    "evaluate": ("evaluate", "", {}, {"forward": 4 * passes(20, 30 + 16 * 20, 0), "tokens": 0}),
    "no_model": ("label_verifier", "", {}, NOTHING),
}  # fmt: skip


@pytest.mark.parametrize("name", WORK)
def test_work_by_hand(name, monkeypatch):
    entry_point, on, config, expected = WORK[name]
    request = Section(message=lambda *_: 80 * "x", draw_principle=lambda _: None)
    monkeypatch.setattr(jobs, "Prompts", lambda **_: request)  # 20 tokens
    work = jobs.forecast_work(stage(entry_point, on, **config), PLAN, MODEL)
    assert {key: getattr(work, key) for key in expected} == expected
    assert work.operations == work.trained + work.forward + work.sampled


def test_every_entry_point_with_a_model_has_a_row():
    assert jobs.COUNTED.keys() <= {row[0] for row in WORK.values()}


def test_two_completions_make_one_pair(monkeypatch):
    two = {**CONTENT, "sampling": {**CONTENT["sampling"], "preference": {"num_samples": 2}}}
    plan = replace(PLAN, content=two)
    trained = stage("train_dpo", "pairs/judge", dpo=Section(**ONE))
    assert jobs.forecast_work(trained, plan, MODEL).tokens == 2 * 40 * 1 * 40
    request = Section(message=lambda *_: 80 * "x", draw_principle=lambda _: None)
    monkeypatch.setattr(jobs, "Prompts", lambda **_: request)  # 20 tokens
    work = jobs.forecast_work(stage("label_judge", "pools/sft", preset=SILENT), plan, MODEL)
    assert work.forward == passes(2 * (40 + 10 + 12 * 10), 90, 1)  # the attacks on 10 of dev


def test_lengths_of_prepared_rows_by_hand():
    prompt = Prompt(id="p", task="solve", question="", prompt="", prompt_ids=[1] * 10, answer="")
    summary = DataSummary()
    summary.add_prompt("train", prompt)
    alone = jobs.summarise_data(summary)
    summary.add_demonstration(SHOWN)
    data = jobs.summarise_data(summary)
    assert data.prompts == {"train": 1, "preference": 0, "dev": 0, "test": 0}
    assert (data.prompt, data.completion, data.longest) == (10.0, 20.0, (30, 20))
    assert (alone.demonstrations, alone.completion, alone.example) == (0, 256.0, None)
