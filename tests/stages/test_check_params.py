"""Every problem of params.yaml at once, each once."""

from pathlib import Path
from types import ModuleType

import pytest
from pydantic import model_validator

from stages import check_params, params
from stages.params import Params


class Model(Params):
    width: int


class Grpo(Params):
    learning_rate: float
    num_steps: int


class Sampling(Params):
    temperature: float


class GrpoConfig(Params):
    seed: int
    model: Model
    train_grpo: Grpo


class SamplingConfig(Params):
    model: Model
    sample_candidates: Sampling

    @model_validator(mode="after")
    def _even(self) -> "SamplingConfig":
        if self.model.width % 2:
            raise ValueError("the width is odd")
        return self


def module(name, config, tables=()):
    made = ModuleType(f"stages.{name}")
    made.Config = config
    made.TABLES = tables
    return made


MODULES = [
    module("train_grpo", GrpoConfig),
    module("sample_candidates", SamplingConfig, ("sample_candidates",)),
]


def right():
    return {
        "seed": 0,
        "model": {"width": 8},
        "train_grpo": {"learning_rate": 1e-4, "num_steps": 3},
        "sample_candidates": {"dev": {"temperature": 1.0}, "test": {"temperature": 0.5}},
    }


def test_entries_of_a_table_may_have_any_name():
    content = right()
    content["sample_candidates"]["more"] = {"temperature": 2.0}
    assert check_params.find_problems(content, MODULES) == []


def test_a_right_file_has_no_problems():
    assert check_params.find_problems(right(), MODULES) == []


def test_every_problem_is_told_once():
    content = right()
    content["sed"] = content.pop("seed")
    content["model"]["width"] = "8"
    content["train_grpo"]["lerning_rate"] = content["train_grpo"].pop("learning_rate")
    content["train_grpo"]["colour"] = "red"
    content["sample_candidates"]["test"] = {"temperature": "hot"}
    content["sample_candidates"]["more"] = {}
    assert check_params.find_problems(content, MODULES) == [
        "sed: unknown key; did you mean 'seed'?",
        "model.width: Input should be a valid integer (found '8')",
        "train_grpo.lerning_rate: unknown key; did you mean 'learning_rate'?",
        "train_grpo.colour: unknown key; remove it",
        "sample_candidates.test.temperature: Input should be a valid number (found 'hot')",
        "sample_candidates.more.temperature: missing",
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda c: c.pop("train_grpo"), "train_grpo: missing"),
        (lambda c: c["train_grpo"].pop("num_steps"), "train_grpo.num_steps: missing"),
        (
            lambda c: c["sample_candidates"].update(dev=4),
            "sample_candidates.dev: Input should be a valid dictionary or instance of Sampling "
            "(found 4)",
        ),
        (
            lambda c: c.update(sample_candidates=3),
            "sample_candidates: expected a table of at least one entry, found 3",
        ),
        (
            lambda c: c.update(sample_candidates={}),
            "sample_candidates: expected a table of at least one entry, found {}",
        ),
        (lambda c: c["model"].update(width=9), "the width is odd"),
        (lambda c: c.update(extra=1), "extra: unknown key; remove it"),
    ],
)
def test_one_problem(change, problem):
    content = right()
    change(content)
    assert check_params.find_problems(content, MODULES) == [problem]


def test_only_the_presets_of_the_plan_must_fit_the_sizes_of_their_stage():
    content = params.read(Path(__file__).parents[2] / "params.yaml")
    content["train_grpo"]["loop"]["prompts_per_step"] = 8
    modules = [
        module for module in check_params.entry_points() if module.__name__ == "stages.train_grpo"
    ]

    def told():
        return [
            one for one in check_params.find_problems(content, modules) if "num_minibatches" in one
        ]

    assert told() == [], "dapo has 16 mini-batches, and nothing runs it"
    content["plan"]["train_grpo"]["grpo"]["preset"] = "dapo"
    assert told() == ["num_minibatches 16 is more than prompts_per_step 8: some would be empty"]


def test_only_planned_pairs_of_preset_and_reward_must_go_together():
    content = params.read(Path(__file__).parents[2] / "params.yaml")
    modules = [
        module for module in check_params.entry_points() if module.__name__ == "stages.train_grpo"
    ]

    def told():
        found = check_params.find_problems(content, modules)
        return [one for one in found if "is an advantage already" in one]

    content["plan"]["train_grpo"]["grpo"]["reward"] = "rule_gdpo"
    assert len(told()) == 1
    content["plan"]["train_grpo"]["grpo"]["preset"] = "dr_grpo"
    assert told() == []
