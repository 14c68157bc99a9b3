"""Texts, tokens and operations of every stage of a small plan, by hand.

Two seeds; 50 train, 40 preference, 10 dev and 20 test problems; demonstrations of 30 and 20 tokens.
A new entry point is a row of `work` in test_sizes.yaml, and of `lengths` if its texts have other
limits.
"""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace as Section

import presets
import pytest

from stages.algorithms.flops import Matrices
from stages.config import PRESETS_PATH, read_yaml
from stages.planning import cost, jobs
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
TABLES = read_yaml(Path(__file__).with_suffix(".yaml"))
PRESETS = read_yaml(ROOT / PRESETS_PATH)
for preset, changes in TABLES["presets"].items():
    PRESETS[preset] = PRESETS.get(preset, {}) | changes
PLAN = Plan(content=TABLES["params"], presets=PRESETS, rows=TABLES["rows"], data=DATA)


def stage(entry_point, on="", *, words=None, **config):
    words = {"on": on, "from": "sft", "split": "train"} | (words or {})
    return Stage(name="x@y", entry_point=entry_point, words=words, config=Section(**config))


def read_section(content):
    """Attributes in place of keys, at each depth."""
    if not isinstance(content, dict):
        return content
    return Section(**{key: read_section(value) for key, value in content.items()})


@pytest.mark.parametrize("case", TABLES["lengths"], ids=lambda case: f"{case['of']} {case['on']}")
def test_texts_are_as_long_as_those_that_made_them(case):
    config = {key: read_section(value) for key, value in case.get("config", {}).items()}
    assert [*max_lengths(stage(case["of"], case["on"], **config), PLAN)] == case["tokens"]


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


def count(terms):
    """Sum of products, each a number of tokens or steps."""
    return sum(math.prod(term) for term in terms)


def operations(terms):
    """Sum over passes: a factor, their number, and the positions and outputs of each."""
    return sum(factor * passes(*sizes) for factor, *sizes in terms)


def read_config(content):
    """The numbers of an entry point, with a preset of reinforcement learning by its name."""
    config = {key: read_section(value) for key, value in content.items()}
    if "method" in content:
        config["preset"] = presets.method(**content["method"])
    if "sft" in content:
        config["preset"].override = lambda sizes: sizes
    return config


@pytest.fixture(autouse=True)
def requests_of_a_judge(monkeypatch):
    request = Section(message=lambda *_: 80 * "x", draw_principle=lambda _: None)
    monkeypatch.setattr(jobs, "Prompts", lambda **_: request)  # 20 tokens
    for name in ("critique_message", "revision_message"):
        monkeypatch.setattr(jobs, name, lambda *_: 80 * "x")


@pytest.mark.parametrize("case", TABLES["work"], ids=lambda case: case["it"])
def test_work_by_hand(case):
    config = read_config(case.get("config", {}))
    row = stage(case["of"], case.get("on", ""), words=case.get("words"), **config)
    number = case.get("demonstrations", DATA.demonstrations)
    work = jobs.forecast_work(row, replace(PLAN, data=replace(DATA, demonstrations=number)), MODEL)
    for key, terms in case["expected"].items():
        expected = count(terms) if key in ("tokens", "steps") else operations(terms)
        assert (key, getattr(work, key)) == (key, expected)
    assert work.operations == work.trained + work.forward + work.sampled


def test_every_entry_point_with_a_model_is_counted_and_has_a_row():
    assert jobs.COUNTED.keys() == cost.LOOPS.keys() | {"evaluate"}  # which measures no memory
    assert jobs.COUNTED.keys() <= {case["of"] for case in TABLES["work"]}


def test_two_completions_make_one_pair():
    sampling = PLAN.content["sampling"] | {"preference": {"num_samples": 2}}
    plan = replace(PLAN, content=PLAN.content | {"sampling": sampling})
    trained = stage("train_dpo", "pairs/judge", dpo=Section(num_epochs=1))
    assert jobs.forecast_work(trained, plan, MODEL).tokens == 2 * 40 * 1 * 40
    (silent,) = [case["config"] for case in TABLES["work"] if case["it"] == "judge"]
    judged = stage("label_judge", "pools/sft", **read_config(silent))
    work = jobs.forecast_work(judged, plan, MODEL)
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
