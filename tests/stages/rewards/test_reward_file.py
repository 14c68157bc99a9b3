"""reward.json: what it must hold, and functions of the user's in stages/rewards/own/."""

import functools
import re
import sys
from pathlib import Path

import presets
import pytest
import torch
from answers import Answers
from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML

import stages.rewards.own as folder
from stages.own_modules import check_arguments
from stages.rewards import reward_file
from stages.rewards.composition import Composition
from stages.rewards.reward_file import RewardFile, load_own_function, model_reward_file

TABLES = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
OWN = sorted(path.stem for path in Path(folder.__path__[0]).glob("[!_]*.py"))


@pytest.mark.parametrize(("words", "expected"), TABLES["aggregates"])
def test_an_aggregate_is_its_formula_or_refused(words, expected):
    adapter = TypeAdapter(reward_file.Aggregate)
    if expected is None:
        with pytest.raises(ValidationError):
            adapter.validate_python(words)
    else:
        scores = torch.tensor([[1.0], [5.0]])
        assert adapter.validate_python(words)(scores=scores).tolist() == [expected]


@pytest.mark.parametrize(("preset", "on", "expected"), TABLES["sources"])
def test_a_rule_names_what_its_components_ask_and_nothing_else(preset, on, expected):
    composition = Composition.model_validate(presets.CONTENT[preset])
    if expected is None:
        reward_file.check_source(composition, on)
    else:
        with pytest.raises(ValueError, match=rf"`on: {expected}`.*`on: {on}`"):
            reward_file.check_source(composition, on)


@pytest.mark.parametrize(("preset", "model", "is_right"), TABLES["models"])
def test_a_reward_has_the_model_that_its_components_ask(preset, model, is_right):
    if is_right:
        assert presets.reward(preset, model).model == model
    else:
        with pytest.raises(ValidationError):
            presets.reward(preset, model)


def test_rewards_that_are_models_are_those_that_can_choose_among_samples(tmp_path):
    written = {"judge": presets.reward("judge_wins", "policy"), ".partial": None}
    written |= {kind: model_reward_file(kind) for kind in ("preference", "outcome", "process")}
    for name, content in written.items():
        (tmp_path / name).mkdir()
        if content is not None:
            reward_file.write_reward(tmp_path / name, content)
    assert reward_file.read_reward(tmp_path / "judge") == written["judge"]
    result = reward_file.read_model_rewards(tmp_path)
    assert result == {name: written[name] for name in ("outcome", "preference", "process")}
    kinds = [(reward.model, *reward.composition.kinds()) for reward in result.values()]
    assert kinds == [("reward", "scorer"), ("reward", "scorer"), ("process", "process")]
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path}, found no reward.json")):
        reward_file.read_reward(tmp_path)
    without = written["judge"].model_dump() | {"composition": presets.CONTENT["own"], "own": None}
    with pytest.raises(ValidationError, match="own"):
        RewardFile.model_validate(without)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """A file `mine.py` in the folder of own rewards, as far as imports can tell."""
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    yield (tmp_path / "mine.py").write_text
    sys.modules.pop("stages.rewards.own.mine", None)


@pytest.mark.parametrize("word", OWN)
def test_a_shipped_function_is_a_number_of_a_prompt_and_a_text(word):
    reward, prompt = load_own_function(word), Answers(["x"]).prompt(0)
    values = [reward(prompt, text) for text in ("", "x" * 4, "x" * len(prompt.question), "", "")]
    assert values[0] == values[3] == values[4]
    expected = {"brevity": [1.0, 1 - 4 / len(prompt.question), 0.0]}.get(word, values[:3])
    assert values[:3] == pytest.approx(expected)
    assert {reward(prompt, "y" * n) for n in range(40)} >= {0.0, 1.0}


@pytest.mark.parametrize(("text", "named"), TABLES["files"])
def test_a_file_without_such_a_function_is_refused(write, text, named):
    write(text)
    with pytest.raises((ValueError, ModuleNotFoundError), match=named):
        load_own_function("mine")


@pytest.mark.parametrize("function", [lambda a, **_: 1.0, lambda a, b, c: 1.0])
def test_a_function_of_other_arguments_is_refused(function):
    """Not in a file: the type checks of tests wrap its functions in others with any arguments."""
    with pytest.raises(ValueError, match=r"x: .*\(a,"):
        check_arguments(function, "x", ("prompt", "completion"))


def test_a_decorated_function_has_the_arguments_of_its_wrapper():
    @functools.wraps(lambda completions: [1.0])
    def reward(prompt, completion):
        return 1.0

    check_arguments(reward, "x", ("prompt", "completion"))
