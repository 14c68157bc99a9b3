"""reward.json: what it must hold, and functions of the user's in stages/rewards/own/."""

import re
import sys
from pathlib import Path

import presets
import pytest
import torch
from answers import Answers
from pydantic import TypeAdapter, ValidationError

import stages.rewards.own as folder
from stages.rewards import reward_file
from stages.rewards.completion_rewards import check_function
from stages.rewards.composition import Composition
from stages.rewards.reward_file import RewardFile, load_own_function, model_reward_file

OWN = sorted(path.stem for path in Path(folder.__path__[0]).glob("[!_]*.py"))
SCORES = torch.tensor([[1.0], [5.0]])  # mean 3, population variance 4


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("mean", 3.0), ("min", 1.0), ({"kind": "mean_minus_std", "k": 0.5}, 2.0),
        ({"kind": "mean_minus_variance", "k": 0.5}, 1.0), ("max", None),
        ({"kind": "mean", "k": 1.0}, None), ({"kind": "mean_minus_std", "k": -1.0}, None),
    ],
)  # fmt: skip
def test_an_aggregate_is_its_formula_or_refused(words, expected):
    adapter = TypeAdapter(reward_file.Aggregate)
    if expected is None:
        with pytest.raises(ValidationError):
            adapter.validate_python(words)
    else:
        assert adapter.validate_python(words)(scores=SCORES).tolist() == [expected]


@pytest.mark.parametrize(
    ("preset", "on", "expected"),
    [
        ("rule", "prompts", None), ("rule_own", "own/brevity", None),
        ("rule_model", "rewards/a", None), ("process_sum", "rewards/a", None),
        ("rule_own", "prompts", "own/<name>"), ("rule_model", "prompts", "rewards/<name>"),
        ("rule", "own/brevity", "prompts"), ("rule", "rewards/a", "prompts"),
    ],
)  # fmt: skip
def test_a_rule_names_what_its_components_ask_and_nothing_else(preset, on, expected):
    composition = Composition.model_validate(presets.CONTENT[preset])
    if expected is None:
        reward_file.check_source(composition, on)
    else:
        with pytest.raises(ValueError, match=rf"`on: {expected}`.*`on: {on}`"):
            reward_file.check_source(composition, on)


@pytest.mark.parametrize(
    ("preset", "model", "is_right"),
    [
        ("rule", None, True), ("judge_wins", "policy", True), ("judge_wins", "reward", False),
        ("judge_wins", None, False), ("rule_model", "reward", True), ("rule_model", None, False),
        ("rule_model", "policy", False), ("process_sum", "process", True),
        ("process_sum", "reward", False),
    ],
)  # fmt: skip
def test_a_reward_has_the_model_that_its_components_ask(preset, model, is_right):
    if is_right:
        assert presets.reward(preset, model).model == model
    else:
        with pytest.raises(ValidationError):
            presets.reward(preset, model)


def test_rewards_that_are_models_are_those_that_can_choose_among_samples(tmp_path):
    written = {"judge": presets.reward("judge_wins", "policy"), ".partial": None}
    for kind in ("preference", "outcome", "process"):
        written[kind] = model_reward_file(kind)
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


# --- functions of the user's


@pytest.fixture
def write(tmp_path, monkeypatch):
    """A file in the folder of own rewards, as far as imports can tell."""
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])

    def write(name, text):
        monkeypatch.delitem(sys.modules, f"stages.rewards.own.{name}", raising=False)
        (tmp_path / f"{name}.py").write_text(text)
        return name

    yield write
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(f"stages.rewards.own.{path.stem}", None)


@pytest.mark.parametrize("word", OWN)
def test_a_shipped_function_is_a_number_of_a_prompt_and_a_text(word):
    reward, prompt = load_own_function(word), Answers(["x"]).prompt(0)
    values = {text: reward(prompt, text) for text in ("", "x" * 4, "x" * len(prompt.question))}
    assert values == {text: reward(prompt, text) for text in values}
    expected = {"brevity": [1.0, 1 - 4 / len(prompt.question), 0.0]}.get(word)
    assert expected is None or list(values.values()) == pytest.approx(expected)
    assert {reward(prompt, "y" * n) for n in range(40)} >= {0.0, 1.0}


DECORATED = """
import functools

def of_batch(function):
    @functools.wraps(function)
    def call(prompt, completion):
        return function([completion])[0]
    return call

@of_batch
def reward(completions):
    return [float(len(text)) for text in completions]
"""


def test_a_function_may_be_decorated_and_import_the_project(write):
    prompt = Answers(["abc"]).prompt(0)
    assert load_own_function(write("batch", DECORATED))(prompt, "abc") == 3.0
    write("other", "VALUE = 2.0\n")
    text = "from stages.rewards.own.other import VALUE\nreward = lambda prompt, text: VALUE\n"
    assert load_own_function(write("greedy", text))(prompt, "") == 2.0


FILES = {
    "number": ("reward = 3\n", r"rewards/own/number\.py.*reward"),
    "form": ("async def reward(p, c):\n    return 1.0\n", r"own/form\.py.*async"),
    "needy": ("import no_such_library\n", "no_such_library"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_without_such_a_function_is_refused(write, name):
    text, named = FILES[name]
    with pytest.raises((ValueError, ModuleNotFoundError), match=named):
        load_own_function(write(name, text))


@pytest.mark.parametrize("word", ["../answer", "own.none", "__init__", "Brevity", "a-b", "absent"])
def test_a_word_that_names_no_file_is_refused(word):
    with pytest.raises(ValueError, match=re.escape(word)):
        load_own_function(word)


@pytest.mark.parametrize(
    "function", [lambda completions, **_: 1.0, lambda prompt, completion, answer: 1.0]
)
def test_a_function_of_other_arguments_is_refused(function):
    """Not in a file: the type checks of tests wrap its functions in others with any arguments."""
    with pytest.raises(ValueError, match=r"x: .*\((completions|prompt),"):
        check_function(function, "x")
