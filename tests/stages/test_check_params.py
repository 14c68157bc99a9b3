"""Every problem of params.yaml at once, each once."""

from types import ModuleType

import pytest

from stages import check_params
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


def module(name, config, variants=None):
    made = ModuleType(f"stages.{name}")
    made.Config = config
    if variants is not None:
        made.VARIANTS = variants
    return made


MODULES = [
    module("train_grpo", GrpoConfig),
    module("sample_candidates", SamplingConfig, ("dev", "test")),
]


def right():
    return {
        "seed": 0,
        "model": {"width": 8},
        "train_grpo": {"learning_rate": 1e-4, "num_steps": 3},
        "sample_candidates": {"dev": {"temperature": 1.0}, "test": {"temperature": 0.5}},
    }


def test_a_right_file_has_no_problems():
    assert check_params.find_problems(right(), MODULES) == []


def test_every_problem_is_told_once():
    content = right()
    content["sed"] = content.pop("seed")
    content["model"]["width"] = "8"
    content["train_grpo"]["lerning_rate"] = content["train_grpo"].pop("learning_rate")
    content["train_grpo"]["colour"] = "red"
    content["sample_candidates"]["test"] = {"temperature": "hot"}
    content["sample_candidates"]["tests"] = {}
    assert check_params.find_problems(content, MODULES) == [
        "sed: unknown key; did you mean 'seed'?",
        "model.width: Input should be a valid integer (found '8')",
        "train_grpo.lerning_rate: unknown key; did you mean 'learning_rate'?",
        "train_grpo.colour: unknown key; remove it",
        "sample_candidates.tests: unknown key; remove it",
        "sample_candidates.test.temperature: Input should be a valid number (found 'hot')",
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda c: c.pop("train_grpo"), "train_grpo: missing"),
        (lambda c: c["train_grpo"].pop("num_steps"), "train_grpo.num_steps: missing"),
        (lambda c: c["sample_candidates"].pop("dev"), "sample_candidates.dev: missing"),
        (
            lambda c: c.update(sample_candidates=3),
            "sample_candidates: expected the keys ['dev', 'test'], found 3",
        ),
        (lambda c: c.update(extra=1), "extra: unknown key; remove it"),
    ],
)
def test_one_problem(change, problem):
    content = right()
    change(content)
    assert check_params.find_problems(content, MODULES) == [problem]
