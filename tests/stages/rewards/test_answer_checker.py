r"""The answer checker on the tables beside this file.

answers.yaml: answers in every notation, with their verdicts. readings.yaml: what each function of
one text returns; a new function of the checker needs a key there, or
`test_no_function_of_one_text_is_left_out` fails.
"""

import gc
import inspect
import json
import random
import re
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from judged_rows import prompt
from ruamel.yaml import YAML

from stages.records.problems import THOUGHTS
from stages.rewards import (
    answer_checker,
    answer_forms,
    answer_value,
    components,
    expression_bounds,
    final_answer,
    number_parsing,
    symbolic_equality,
    units,
)  # fmt: skip
from stages.rewards.answer_checker import answers_match, is_correct, solves_problem
from stages.rewards.final_answer import answer_statements, extract_answer

FOLDER = Path(__file__).parent


YAML_READER = YAML(typ="safe")
ANSWERS, READINGS = (YAML_READER.load(FOLDER / f"{name}.yaml") for name in ("answers", "readings"))
BY_HAND = (FOLDER / "golds_by_hand.txt").read_text(encoding="utf-8").splitlines()
"""Golds in the notations of AQuA, ASDiv, GPQA, OlympiadBench and textbooks for college."""
LINES = (FOLDER / "math500_answers.jsonl").read_text(encoding="utf-8").splitlines()
MATH500 = [json.loads(line)["answer"] for line in LINES]
"""The gold answers of MATH-500 (Hendrycks et al. 2021, MIT licence; Lightman et al. 2023)."""
MODULES = (
    answer_checker, answer_forms, answer_value, expression_bounds, final_answer, number_parsing,
    symbolic_equality, components, units,
)  # fmt: skip


@pytest.mark.parametrize("kind", ["equal", "different"])
def test_a_pair_of_answers_is_equal_or_not_whichever_is_gold(kind):
    pairs = [(a, b) for group in ANSWERS[kind] for a in group for b in group if a is not b]
    assert [pair for pair in pairs if answers_match(*pair) != (kind == "equal")] == []


@pytest.mark.parametrize("subject", ANSWERS["answers"])
def test_a_boxed_answer_has_its_verdict(subject):
    for gold, verdicts in ANSWERS["answers"][subject].items():
        for verdict, answers in verdicts.items():
            for answer in answers:
                is_right = is_correct(rf"So \boxed{{{answer}}}", gold)
                assert (gold, answer, is_right) == (gold, answer, verdict == "right")


@pytest.mark.parametrize("verdict", ["right", "wrong"])
def test_a_completion_has_its_verdict(verdict):
    rows = [row for row in ANSWERS["completions"] if row[0] == verdict]
    assert len(rows) > 50
    assert [row for row in rows if is_correct(row[2], row[1]) != (verdict == "right")] == []


PROSE = ("f(x) is even", "10 by 12")
"""Golds of the table that only their own text equals, and that no data set's field is read as."""
GOLDS = {
    "of the table": [
        *ANSWERS["golds"],
        *(gold for golds in ANSWERS["answers"].values() for gold in golds if gold not in PROSE),
        *(text for group in ANSWERS["equal"] for text in group),
    ],
    "by hand": BY_HAND,
}


@pytest.mark.parametrize("source", GOLDS)
def test_a_gold_answer_is_read_as_it_is_and_equals_itself(source):
    assert len(GOLDS[source]) > 150
    assert [gold for gold in GOLDS[source] if answer_checker.read_gold(gold) != gold] == []
    assert [gold for gold in GOLDS[source] if not answers_match(gold, gold)] == []


def test_every_gold_answer_of_math_500_equals_itself_in_its_usual_dress_and_no_neighbour():
    assert len(MATH500) == 500
    assert [gold for gold in MATH500 if not is_correct(rf"so $\boxed{{{gold}}}$.", gold)] == []
    assert [gold for gold in MATH500 if not is_correct(f"The answer is ${gold}$.", gold)] == []
    assert [pair for pair in pairwise(sorted(set(MATH500))) if answers_match(*pair)] == [
        ("120", r"120^\circ"), ("15", r"15\mbox{ cm}^2"), ("30", r"30^\circ"), ("36", r"36^\circ"),
    ]  # fmt: skip


SWAPS = ANSWERS["swaps"]
CHANGES: dict[str, Any] = {
    r"\d": lambda digit: str(int(digit) % 9 + 1),
    r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])": lambda letter: (
        ("V" if letter == "W" else "W") if letter.isupper() else "v" if letter == "w" else "w"),
    r"(?<=[\w)}]) ?[-+/<>] ?(?=[\w\\(])|\\(?:le|ge|cup|cap|sin|cos|pm|cdot|times)(?![A-Za-z])":
        lambda operator: SWAPS[operator.strip()],
    r"^[(\[]|[)\]]$": SWAPS.get, r"\^": lambda _: "", r"(?<!\\)[()\[\]{}]": lambda _: "",
}  # fmt: skip
"""Places of a gold answer that are changed, one at a time -> what takes their place."""


def is_excepted(gold: str, other: str) -> bool:
    r"""Whether they are equal for a reason.

    At infinity an interval has no end that a bracket could include; `C)` and `(E) 13` are the
    choices C and E; of seven, three are chosen in as many ways as four.
    """
    if (gold, other) == (r"\binom{7}{3}", r"\binom{7}{4}"):
        return True
    is_interval = "infty" in gold and gold[1:-1] == other[1:-1]
    choices = [answer_value.read_value(text) for text in (gold, other)]
    letters = [choice.letters for choice in choices if isinstance(choice, answer_value.Choice)]
    return is_interval or (len(letters) == 2 and letters[0] == letters[1])


@pytest.mark.parametrize(
    "golds",
    [
        pytest.param([*MATH500[::25], *BY_HAND[::12]], id="some"),
        pytest.param([*MATH500, *BY_HAND], id="all", marks=pytest.mark.weekly),
    ],
)
def test_no_mutation_of_a_gold_answer_equals_it(golds):
    rng, equal = random.Random(0), list[tuple[str, str]]()
    for gold in golds:
        for pattern, change in CHANGES.items():
            place = rng.choice([*re.finditer(pattern, gold)] or [None])
            if place is None:
                continue
            other = gold[: place.start()] + change(place[0]) + gold[place.end() :]
            is_equal = answers_match(other, gold) or answers_match(gold, other)
            if is_equal and not is_excepted(gold, other):
                equal.append((gold, other))
    assert equal == []


# --- functions of one text


def list_functions() -> dict[str, Any]:
    """The public functions of the checker that one text is enough for."""
    functions: dict[str, Any] = {}
    for module in MODULES:
        for name, function in vars(module).items():
            inner = inspect.unwrap(function) if callable(function) else None
            if inspect.isfunction(inner) and inner.__module__ == module.__name__:
                parameters = inspect.signature(inner).parameters.values()
                needed = [each.annotation for each in parameters if each.default is each.empty]
                if needed == [str] and not name.startswith("_"):
                    functions[name] = function
    return functions


FUNCTIONS = list_functions()
OF_PAIRS: dict[str, Any] = {
    "differ": expression_bounds.differ, "are_equal": symbolic_equality.are_equal,
    "units_differ": lambda *pair: units.units_differ(*map(units.read_unit, pair)),
}  # fmt: skip
STRUCTURED = {"answer_statements", "read_unit", "read_value", "split_unit"}  # fmt: skip
"""Of one text, too, but with tuples as results: what is built on them is in the tables."""


def simplify(result: Any) -> Any:
    """A result as the table writes it: forms by their names, whether bounds have a value."""
    if isinstance(result, dict):
        return ", ".join(sorted(result))
    if isinstance(result, expression_bounds.Bounds):
        return "no value" if result.value is None else "a value"
    return result if isinstance(result, str | bool | None) else str(result)


def test_no_function_of_one_text_is_left_out():
    assert len(FUNCTIONS) > 30
    assert set(READINGS) == ({*FUNCTIONS} - STRUCTURED) | {*OF_PAIRS}


@pytest.mark.parametrize("name", sorted({*FUNCTIONS} - STRUCTURED))
def test_a_function_of_one_text_returns_what_its_table_says(name):
    for expected, texts in READINGS[name].items():
        results = {text: simplify(FUNCTIONS[name](text)) for text in texts}
        assert results == dict.fromkeys(texts, simplify(expected))


@pytest.mark.parametrize("name", OF_PAIRS)
def test_a_function_of_two_texts_returns_the_same_whichever_is_the_gold_answer(name):
    for expected, pairs in READINGS[name].items():
        results = {(*pair,): [OF_PAIRS[name](*pair), OF_PAIRS[name](*pair[::-1])] for pair in pairs}
        assert results == {(*pair,): [expected] * 2 for pair in pairs}


# --- choices


CHOICES, OTHERS = (ANSWERS["choices"][name] for name in ("C", "others"))


@pytest.mark.parametrize("gold", CHOICES)
def test_a_choice_is_its_letter_in_every_notation(gold):
    assert answer_checker.read_gold(gold) == gold
    for answer in CHOICES:
        assert is_correct(rf"So it is \boxed{{{answer}}}", gold)
        assert is_correct(f"Thus.\nAnswer: {answer}", gold)
        assert answer_checker.states_an_answer(rf"\boxed{{{answer}}}", gold)
    for answer in OTHERS:
        assert not answers_match(answer, gold)
    assert answers_match("12", gold) == ("12" in gold)
    assert not answers_match("(D) 12", gold)  # another letter, whatever stands beside it
    assert not answer_checker.states_an_answer("#### 12", gold)


# --- statements, forms and thoughts


BY_FORM = ANSWERS["by_form"]


def test_only_the_listed_forms_are_read():
    assert {*BY_FORM} == {*answer_forms.FORMS, "Result:"}
    text = "\n".join(BY_FORM.values())
    for number, form in enumerate(BY_FORM, start=1):
        assert list(answer_statements(text, [form])) == [str(number)]
        assert is_correct(text, str(number), [form])
        assert answer_checker.is_leniently_correct(text, str(number), [form])
        assert answer_checker.states_one_answer(text, [form])
        assert answer_checker.states_an_answer(text, forms=[form])
    assert list(answer_statements(text, ["Result:", "hash"])) == ["6", "1"]
    assert list(answer_statements(text)) == ["5", "4", "3", "2", "1"]
    assert answer_checker.has_format(r"\boxed{2} so" + "\n#### 1", ["hash"])
    assert answer_checker.is_strictly_correct("\\boxed{2}\n#### 1", "1", ["hash"])
    assert not answer_checker.is_strictly_correct("\\boxed{2}\n#### 1", "1", ["boxed"])
    assert list(answer_statements(r"The answer is 6, or \boxed{7}.")) == ["7", r"6, or \boxed{7}"]
    for completion in (r"The answer is $\boxed{7}$.", "Answer:\n#### 7", r"**Answer:** \boxed{7}"):
        assert list(answer_statements(completion)) == ["7"]


@pytest.mark.parametrize(("form", "named"), ANSWERS["forms_refused"].items())
def test_a_word_that_is_no_form_is_refused(form, named):
    with pytest.raises(ValueError, match=named):
        answer_forms.check_form(form)
    assert answer_forms.check_form(f"{'a' * 39}:")


def test_words_are_an_answer_where_the_gold_answer_is_words():
    for gold, is_stated in (("oranges", True), ("7", False), ("", False)):
        assert answer_checker.states_an_answer("#### apples", gold) == is_stated
    assert answer_checker.states_an_answer(r"\boxed{\text{apples}}", "7")  # marked as an answer


def test_prompts_that_ask_for_a_form_that_is_not_read_are_counted():
    texts = [text for texts in READINGS["find_requested"].values() for text in texts]
    for forms, expected in ANSWERS["unlisted"]:
        unlisted = answer_forms.UnlistedForms(forms)
        for text in texts:
            unlisted.add(text)
        assert (unlisted.num_prompts, unlisted.counts) == (12, expected)
        lines = unlisted.describe()
        assert [form for form, line in zip(expected, lines, strict=True) if form not in line] == []


@pytest.mark.parametrize(("begin", "end"), THOUGHTS.items())
def test_nothing_before_the_end_of_a_thought_counts_however_it_is_spelled(begin, end):
    assert extract_answer(f"{begin}\n#### 6\n{end}\n\n#### 7") == "7"
    assert extract_answer(f"#### 6\n{end}\n\nI do not know.") is None
    assert extract_answer(f"{begin}\n#### 6\n") is None
    assert extract_answer(f"#### 6\n{begin} is that so?") is None
    opened = replace(prompt(), prompt=f"Why?{begin}\n")  # by the chat template
    assert not solves_problem(opened, "#### 7")
    assert not answer_checker.is_strictly_correct(opened.whole("#### 7"), "7")
    assert not answer_checker.is_leniently_correct(opened.whole("it is 7"), "7")
    assert solves_problem(opened, f"#### 6\n{end}\n#### 7")
    assert solves_problem(replace(prompt(), prompt=f"Why?{begin}\n\n{end}\n\n"), "#### 7")


def test_a_problem_without_a_gold_answer_has_no_verdict():
    with pytest.raises(ValueError, match="'a'"):
        solves_problem(replace(prompt(), answer=None), "#### 7")


@pytest.mark.parametrize(("verdicts", "completions"), ANSWERS["seven"].items())
def test_each_reading_of_the_answer_seven(verdicts, completions):
    readings = {"strict": answer_checker.is_strictly_correct, "checked": is_correct,
                "lenient": answer_checker.is_leniently_correct}  # fmt: skip
    for completion in completions:
        right = [name for name, is_right in readings.items() if is_right(completion, "7")]
        assert (completion, right) == (completion, verdicts.split())


def test_nine_readable_solutions_of_ten_are_enough_and_fewer_an_error():
    assert answer_checker.check_readable_share(9, ["x"]) == 0.9
    assert answer_checker.check_readable_share(0, []) is None
    with pytest.raises(ValueError, match=r"88\.9% of 9 .*'so 4'"):
        answer_checker.check_readable_share(8, ["no answer in 'so 4'"])


# --- text made to be slow


HOSTILE = ["".join(piece * count for piece, count in row) for row in ANSWERS["slow"]]


def test_hostile_text_is_wrong_and_takes_seconds_of_the_processor():
    """Against a number, so none of it reaches math-verify. Without the garbage of other tests."""
    caches = number_parsing.parse_number, answer_value.read_value
    gc.disable()
    try:
        for cache in caches:
            cache.cache_clear()
        start = time.thread_time()
        for text in HOSTILE:
            for form in ("#### {}", r"\boxed{{{}}}", "<answer>{}</answer>", "The answer is {}."):
                assert not is_correct(form.format(text), "7")
            answer_checker.read_answer(text)
            extract_answer(text)
        assert time.thread_time() - start < 10
    finally:
        gc.enable()
