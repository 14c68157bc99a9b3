"""Problems of reasoning-gym: distinct, refused by name where no result can rest on them."""

import importlib
import inspect
import json
import re
import subprocess
import sys

import pytest
from environments_installed import needs_environments
from pydantic import TypeAdapter, ValidationError

from stages.sources import catalogue, reasoning_gym, splitting
from stages.sources.reasoning_gym import CHECKED, HASH_SEED, Items, ReasoningGymConfig

ADAPTER = TypeAdapter(catalogue.SourceConfig)
SOURCE = {
    "kind": "reasoning_gym", "num_problems": 40,
    "families": {"chain_sum": {"min_terms": 2, "max_terms": 2, "max_digits": 2}, "gcd": {}},
}  # fmt: skip


@pytest.mark.parametrize(
    "families",
    [
        {"word_ladder": {}},  # PYTHONHASHSEED
        {"game_of_life_halting": {}},  # pays any text
        {"graph_color": {}},  # no answer
        {"countdown": {}},  # another right answer than the stored one
        {"composite": {}},
        {"chain_sum": {"seed": 3}},
        {},
    ],
)
def test_families_that_no_result_should_rest_on_are_refused_before_anything_runs(families):
    with pytest.raises(ValidationError):
        ADAPTER.validate_python(SOURCE | {"families": families})


def test_scored_families_need_no_answer_but_a_score_of_any_text():
    families = {"graph_color": {}, "sudoku": {}}
    assert reasoning_gym.check_scored_families(families) == families
    for name in ("prime_factorization", "game_of_life_halting", *reasoning_gym.EVALUATES):
        with pytest.raises(ValueError, match=name):
            reasoning_gym.check_scored_families({name: {}})


@needs_environments
def test_no_answer_of_a_scored_family_is_evaluated():
    """Python would run what a model wrote."""
    package = importlib.import_module("reasoning_gym.factory")
    evaluates = {
        name
        for name, (family, _) in package.DATASETS.items()
        if re.search(r"\b(eval|parse_expr)\(answer", inspect.getsource(family.score_answer))
    }
    assert evaluates == reasoning_gym.EVALUATES


def test_an_interrupted_item_is_made_again(monkeypatch):
    """Where a time limit ends a call, the items keep their numbers."""

    class Dataset:
        interruptions = 1

        def __getitem__(self, index):
            if index == 1 and self.interruptions:
                self.interruptions -= 1
                raise TimeoutError
            return {"question": f"{index // 2}?"}

    monkeypatch.setattr(reasoning_gym, "open_family", lambda *_: Dataset())
    items = Items("twice", {}, 0)
    with pytest.raises(TimeoutError):
        items[1]
    assert [items[index]["question"] for index in range(3)] == ["0?", "1?", "2?"]


def test_lists_do_not_contradict_each_other():
    assert not CHECKED & (HASH_SEED | reasoning_gym.ANY_TEXT | reasoning_gym.NO_ANSWER)


@needs_environments
def test_problems_are_distinct_of_each_family_in_turn_and_of_the_seed():
    config = ADAPTER.validate_python(SOURCE)
    assert isinstance(config, ReasoningGymConfig)
    screened = catalogue.read_source(config, 0)
    problems = screened.problems
    assert not screened.bad
    assert [problem.id for problem in problems[:3]] == [
        "chain_sum-00000", "gcd-00000", "chain_sum-00001"
    ]  # fmt: skip
    assert len({splitting.split_key(problem) for problem in problems}) == len(problems) == 40
    assert catalogue.read_source(config, 0).problems == problems
    assert len({*(p.question for p in catalogue.read_source(config, 1).problems)} & {
        problem.question for problem in problems
    }) < 20  # fmt: skip
    shares = splitting.Shares(preference=0.2, dev=0.2, test=0.2)
    splits = splitting.split_problems(problems, shares)
    questions = [{problem.question for problem in members} for members in splits.values()]
    assert sum(map(len, questions)) == len(set.union(*questions))


@needs_environments
def test_a_question_that_was_there_before_is_passed_over_and_an_end_is_an_error():
    # Sums of two digits from 1 to 2: 1 + 1, 1 + 2, 2 + 1, ... are soon all there.
    family = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    items = Items("chain_sum", family, 0)
    assert len({items[index]["question"] for index in range(80)}) == 80
    with pytest.raises(ValueError, match="different questions"):
        items[1000]


@needs_environments
def test_a_wrong_parameter_and_an_unknown_family_are_named():
    for name, options in (("chain_sum", {"terms": 2}), ("chain_sums", {})):
        with pytest.raises(ValueError, match=name):
            Items(name, options, 0)


DESCRIBE = """
import hashlib, json
from stages.studies.reasoning_gym import describe_items, make_items
names = {names!r}
print(json.dumps([describe_items(make_items(name)) for name in names]))
"""


@needs_environments
def test_the_hash_seed_changes_refused_families_and_no_others(monkeypatch):
    names = ["isomorphic_strings", "ransom_note", "chain_sum", "letter_counting"]
    described = []
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        command = [sys.executable, "-c", DESCRIBE.format(names=names)]
        done = subprocess.run(command, capture_output=True, check=True)
        described.append(json.loads(done.stdout))
    varies = {name for name, *pair in zip(names, *described, strict=True) if pair[0] != pair[1]}
    assert varies == HASH_SEED & {*names} == {"isomorphic_strings", "ransom_note"}


@needs_environments
def test_the_answer_checker_judges_as_the_package_does():
    from stages.studies.reasoning_gym import make_items, measure_agreement

    names = ("chain_sum", "gcd", "leg_counting", "number_sequence")
    assert CHECKED.issuperset(names)
    for name in names:
        dataset = reasoning_gym.open_family(name, {}, 0)
        assert measure_agreement(dataset, make_items(name)[:20]) == 1
