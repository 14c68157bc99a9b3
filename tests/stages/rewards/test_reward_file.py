import sys
from pathlib import Path

import pytest
import torch
from answers import Answers
from pydantic import TypeAdapter, ValidationError

import stages.rewards.own as folder
from stages.rewards import reward_file
from stages.rewards.completion_rewards import check_function


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


def test_the_shipped_example_prefers_short_answers():
    reward = reward_file.load_own_function("brevity")
    prompt = Answers(["x"]).prompt(0)
    assert reward(prompt, "") == 1.0
    assert reward(prompt, "x" * len(prompt.question)) == 0.0
    assert reward(prompt, "x" * 1000) == 0.0


@pytest.mark.parametrize("word", ["../answer", "own.none", "__init__", "Brevity", "a-b"])
def test_a_word_that_is_no_file_name_is_refused(word):
    with pytest.raises(ValueError, match="expected the name of a file"):
        reward_file.load_own_function(word)


def test_a_file_that_is_missing_or_has_no_function_is_told(write):
    with pytest.raises(ValueError, match=r"there is no stages/rewards/own/absent\.py"):
        reward_file.load_own_function("absent")
    with pytest.raises(ValueError, match="has no function `reward"):
        reward_file.load_own_function(write("number", "reward = 3\n"))


def test_a_coroutine_as_reward_is_refused_before_anything_is_trained(write):
    with pytest.raises(ValueError, match=r"rewards/own/form\.py: expected .*found `async def`"):
        reward_file.load_own_function(write("form", "async def reward(p, c):\n    return 1.0\n"))


@pytest.mark.parametrize(
    "function", [lambda completions, **_: 1.0, lambda prompt, completion, answer: 1.0]
)
def test_a_reward_with_other_arguments_is_refused(function):
    """Not in a file: the type checks of tests wrap its functions in others with any arguments."""
    with pytest.raises(ValueError, match=r"x: expected .*found arguments \((completions|prompt),"):
        check_function(function, "x")


def test_of_a_decorated_reward_the_arguments_of_the_decorator_count(write):
    source = """
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
    reward = reward_file.load_own_function(write("batch", source))
    assert reward(Answers(["abc"]).prompt(0), "abc") == 3.0


def test_an_error_of_its_own_is_its_own(write):
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        reward_file.load_own_function(write("needy", "import no_such_library\n"))


def test_it_may_import_of_the_project_what_it_likes(write):
    write("other", "VALUE = 2.0\n")
    text = "from stages.rewards.own.other import VALUE\nreward = lambda prompt, text: VALUE\n"
    assert reward_file.load_own_function(write("greedy", text))(Answers(["x"]).prompt(0), "") == 2.0


def test_the_files_that_are_shipped_are_loaded():
    words = [path.stem for path in Path(folder.__path__[0]).glob("[!_]*.py")]
    assert {"brevity", "coin"} <= {*words}
    for word in words:
        assert callable(reward_file.load_own_function(word))


# Mean 3, population variance 4.
SCORES = torch.tensor([[1.0], [5.0]])


def aggregate(**words):
    return TypeAdapter(reward_file.Aggregate).validate_python(words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"kind": "mean"}, 3.0),
        ({"kind": "min"}, 1.0),
        ({"kind": "mean_minus_std", "k": 0.5}, 2.0),
        ({"kind": "mean_minus_variance", "k": 0.5}, 1.0),
    ],
)
def test_a_kind_is_its_formula(words, expected):
    assert aggregate(**words)(scores=SCORES).tolist() == [expected]


@pytest.mark.parametrize(
    "words", [{"kind": "max"}, {"kind": "mean", "k": 1.0}, {"kind": "mean_minus_std", "k": -1.0}]
)
def test_anything_else_is_refused(words):
    with pytest.raises(ValidationError):
        aggregate(**words)
