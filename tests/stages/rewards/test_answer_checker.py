import json
import subprocess
import sys
from pathlib import Path

import pytest
from cpu_time import cpu_seconds

from stages.records.problems import Prompt
from stages.rewards.answer_checker import (
    answers_match,
    check_readable_share,
    has_format,
    is_correct,
    is_leniently_correct,
    is_strictly_correct,
    read_last_number,
    solves_problem,
)
from stages.rewards.answer_value import canonical_value
from stages.rewards.number_parsing import parse_number

ADVERSARIAL = Path(__file__).parent / "adversarial.jsonl"


@pytest.mark.parametrize(
    ("completion", "gold"),
    [
        ("3 + 4 = 7\n#### 7", "7"),
        ("#### $1,234.00", "1234"),
        ("#### 1234", "1,234"),
        ("#### 0.75", "3/4"),
        (r"\boxed{\frac{3}{4}}", "0.75"),
        ("<answer>18 dollars</answer>", "18"),
        ("The answer is -7.", "-7"),
        ("The answer is 50%.", "50"),
    ],
)
def test_a_right_answer_in_any_form_is_right(completion: str, gold: str) -> None:
    assert is_correct(completion, gold)


@pytest.mark.parametrize(
    ("completion", "gold"),
    [
        ("7", "7"),
        ("#### 8", "7"),
        ("#### 7\n#### 8", "7"),
        ("#### 7 or 8", "7"),
        ("#### 7, 8", "7"),
        ("#### 3 + 4", "7"),
        ("#### 3 + 4 = 7", "7"),
        ("#### (7)", "7"),
        ("#### 7.0001", "7"),
        ("#### 77", "7"),
        ("#### 0.5", "50%"),
        ("#### \uff17", "7"),
        ("#### \u0667", "7"),
        ("#### 7²", "7"),
        ("#### " + "7" * 10_000, "7"),
        ("#### 7", "nan"),
        ("#### nan", "nan"),
        ("#### not 7", "7"),
    ],
)
def test_a_wrong_or_tricky_answer_is_wrong(completion: str, gold: str) -> None:
    assert not is_correct(completion, gold)


def test_answers_made_to_deceive_have_the_verdicts_given_by_hand() -> None:
    rows = [json.loads(line) for line in ADVERSARIAL.read_text(encoding="utf-8").splitlines()]
    assert len(rows) >= 112
    judged = [(row, is_correct(row["completion"], row["gold"])) for row in rows]
    assert [row for row, verdict in judged if verdict != row["right"]] == []


HOSTILE = (
    "9**9**9**9", "9" * 10_000, "-" * 10_000, "(" * 5_000 + "7" + ")" * 5_000, "7" + "," * 10_000,
    "1/" * 5_000 + "7", r"\sqrt{" * 2_000 + "7", r"\frac{1}{" * 2_000, "{" * 10_000, "9!" * 99,
    "999999!!!!!!!!", "\x00\x01\x02", "1e99999999", "7" * 199 + "." + "7" * 199,
)  # fmt: skip
FORMS = ("#### {}", r"\boxed{{{}}}", "<answer>{}</answer>", "The answer is {}.")


@pytest.mark.parametrize("answer", HOSTILE, ids=lambda answer: answer[:12].encode().hex())
def test_a_hostile_answer_is_wrong_and_costs_nothing(answer: str) -> None:
    # against a number none of these reaches math-verify
    def check() -> None:
        for form in FORMS:
            assert not is_correct(form.format(answer), "7")
            canonical_value(answer)

    assert cpu_seconds(check, parse_number, canonical_value) < 0.5


def test_expressions_are_compared_by_math_verify() -> None:
    assert answers_match(r"\sqrt{16}", "4")
    assert answers_match("1 + x^2", "x^2 + 1")
    assert answers_match(r"\frac{\pi}{2}", r"\pi/2")
    assert answers_match("(1,2)", "(1, 2)")
    assert not answers_match("(2, 1)", "(1, 2)")
    assert not answers_match(r"\sqrt{2}", "1.41")


def test_a_cheap_check_takes_a_few_microseconds() -> None:
    completion = "3 + 4 = 7\n7 * 2 = 14\n14 - 5 = 9\n9 + 8 = 17\n#### 17"
    is_correct(completion, "17")
    seconds = cpu_seconds(lambda: [is_correct(completion, "17") for _ in range(1_000)])
    # 6 microseconds measured; the bound leaves room for a busy machine.
    assert seconds / 1_000 < 100e-6


def test_importing_the_checker_imports_nothing_heavy() -> None:
    code = (
        "import sys, stages.rewards.answer_checker, stages.rewards.answer_checker\n"
        "print(sorted({'torch', 'math_verify', 'sympy', 'transformers'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_working_then_one_readable_answer_is_the_format() -> None:
    assert has_format("3 + 4 = 7\n#### 7")
    assert has_format("She has 7.\n\n#### $1,234\n")


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "#### 7",
        "\n#### 7",
        "...\n#### 7",
        "3 + 4 = 7",
        "3 + 4 = 7 #### 7",
        "3 + 4 = 7\n####",
        "3 + 4 = 7\n#### seven",
        "3 + 4 = 7\n#### 7 or 8",
        "3 + 4 = 7\n#### 7\n#### 7",
        "3 + 4 = 7\n#### 7\nDone.",
        "The answer is 7.\n#### 7",
        "\\boxed{7}\n#### 7",
        "3 + 4 = 7\n<answer>7</answer>",
    ],
)
def test_anything_else_is_not(completion: str) -> None:
    assert not has_format(completion)


@pytest.mark.parametrize(
    ("completion", "strictly", "checked", "leniently"),
    [
        ("3 + 4 = 7\n#### 7", True, True, True),
        ("#### 7", True, True, True),
        ("The answer is 7.", False, True, True),
        ("#### 7\nI am sure", False, True, True),
        ("3 + 4 = 7", False, False, True),
        ("so 7 shells, I think", False, False, True),
        ("3 + 4 = 7\n#### 8", False, False, False),
        ("#### 8\nno, it is 7", False, False, True),
        ("about 1,007.", False, False, False),
        ("no number", False, False, False),
        ("", False, False, False),
        ("minus -7", False, False, False),
    ],
)
def test_each_reading_of_an_answer_seven(completion, strictly, checked, leniently):
    assert is_strictly_correct(completion, "7") is strictly
    assert is_correct(completion, "7") is checked
    assert is_leniently_correct(completion, "7") is leniently


def test_separators_belong_to_a_number_and_a_comma_after_it_does_not():
    assert is_leniently_correct("it costs 1,234, all told", "1234")
    assert not is_leniently_correct("it costs 1,234, all told", "234")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12-5", "5"),
        ("x = -5", "-5"),
        ("x=-5", "-5"),
        ("(3)-2", "2"),
        ("it is \u22125.", "-5"),
        ("a half is .5", ".5"),
        ("see no.5", "5"),
        ("1,234.50 all told, or so", "1,234.50"),
        ("<think>4</think>none", None),
    ],
)
def test_the_last_number_has_its_sign_and_not_that_of_a_difference(text: str, number: str | None):
    assert read_last_number(text) == number


def test_a_stricter_reading_is_never_right_where_a_laxer_one_is_wrong():
    texts = ["#### 7", "7 #### 8", "#### 8\n7", "answer is 7", "\\boxed{7} 9", "<answer>7</answer>"]
    for text in texts:
        readings = [
            is_strictly_correct(text, "7"),
            is_correct(text, "7"),
            is_leniently_correct(text, "7"),
        ]
        assert readings == sorted(readings)


def test_nine_of_ten_is_enough():
    assert check_readable_share(9, ["no final answer"]) == 0.9


def test_less_is_an_error_that_shows_one_and_says_what_to_write():
    with pytest.raises(ValueError, match=r"88\.9% of 9 .*no final answer in 'so 4'.*#### 42"):
        check_readable_share(8, ["no final answer in 'so 4'"])


def test_no_solution_at_all_has_no_share():
    assert check_readable_share(0, []) is None


def prompt(text: str, answer: str | None = "7") -> Prompt:
    return Prompt(id="p", task="solve", question="?", prompt=text, prompt_ids=[], answer=answer)


def test_a_block_that_the_template_has_begun_must_end_before_the_answer():
    opened, plain = prompt("Why?<assistant><think>\n"), prompt("Why?<assistant>")
    assert solves_problem(plain, "#### 7")
    assert not solves_problem(opened, "#### 7")
    assert solves_problem(opened, "#### 6\n</think>\n#### 7")
    # switched off, the template has ended it as well
    assert solves_problem(prompt("Why?<think>\n\n</think>\n\n"), "#### 7")
    assert not is_strictly_correct(opened.whole("#### 7"), "7")
    assert not is_leniently_correct(opened.whole("it is 7"), "7")
    assert not has_format("<think>3 + 4\n#### 7")
    assert has_format("<think>#### 6</think>3 + 4 = 7\n#### 7")


def test_without_a_gold_answer_nothing_is_right_or_wrong():
    with pytest.raises(ValueError, match=r"none of prompt 'p': .*Take people's or a judge's pairs"):
        solves_problem(prompt("Hi", None), "#### 7")


@pytest.mark.parametrize("gold", ["December 1972", "14 December 1972 or December 1972"])
@pytest.mark.parametrize(
    ("answer", "is_right"),
    [("December 1972", True), ("december 1972", True), ("December 1973", False), ("1972", False)],
)
def test_a_month_and_its_year_are_an_answer(gold, answer, is_right):
    assert is_correct(f"The answer is {answer}.", gold) is is_right
