r"""Golds as data sets have them, and the answers that equal them and that do not."""

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from stages.rewards.answer_checker import answers_match, is_correct, read_answer, read_gold
from stages.rewards.answer_value import read_choice
from stages.rewards.final_answer import extract_answer

MATH500 = Path(__file__).parent / "math500_answers.jsonl"
BY_HAND = (Path(__file__).parent / "golds_by_hand.txt").read_text("utf-8").splitlines()
"""Golds in the notations of AQuA, ASDiv, GPQA, OlympiadBench and textbooks for college."""

EQUAL = [
    (r"P(A)=1/3", "1/3"), ("2√3", r"2\sqrt{3}"), ("π/4", r"\frac{\pi}{4}"), ("1e8", "100000000"),
    (r"1\,000", "1000"), ("8 dollars", "8"), ("2 1/2", "5/2"), (r"0.\overline{3}", "1/3"),
    (r"0.1\overline{6}", r"\frac{1}{6}"), ("6!", "720"), (r"1-\mathrm{i}", "1-i"),
    (r"4\sqrt(2)", r"4\sqrt{2}"), ("x = 5", "5"), ("5", "x = 5"), ("∞", r"\infty"),
    ("x²+1", "x^2+1"), (r"\{1, 2\}", "2, 1"),
    (r"\frac{1}{2}", ".5"), (r"3\pi", "3π"), ("10^3", "1000"), ("3 cm^2", "3"),
    (r"3\text{ cm}^2", "3 cm²"), ("yes", "Yes."), ("true", r"\text{True}"), ("2:3", "2 : 3"),
    ("even", r"\text{even}"), ("Monday", "monday"), ("pi", r"\pi"), ("10^{8}", "1e8"),
    ("6 or 5", "5 or 6"), ("x+2 and x-3", "x-3, x+2"), ("60 km/h", "60 km per h"),
    (r"2k\pi, k\in\mathbb{Z}", r"2n\pi, n \in Z"),
    (r"2k\pi (k∈ℤ)", r"\pi \cdot 2m, m\in\mathbb{Z}"),
    (r"\pm\frac{\pi}{3}+2k\pi, k\in\mathbb{Z}",
     r"2\pi n-\frac{\pi}{3}, \frac{\pi}{3}+2n\pi, n \in \mathbb{Z}"),
    (r"n\pi \text{ where } n \text{ is an integer}", r"k\pi, k \in \mathbb Z"),
    (r"n\pi and \frac{\pi}{2}+n\pi, n \in \mathbb{Z}",
     r"m\pi and \frac{\pi}{2}+m\pi, m \in \mathbb{Z}"),
    (r"(k, 2k), k \in \mathbb{Z}", r"(t,2t), t\in\mathbb{Z}"), ("[0, 1)", r"\left[0,1\right)"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    (r"\begin{pmatrix} 1/2 \\[4pt] 2 \end{pmatrix}", r"\begin{pmatrix}\frac12\\2\end{pmatrix}"),
    (r"\emptyset", r"\varnothing"), (r"\infty", "infinity"),
    ("2, 3", "x=2 or x=3"), ("2, 3", r"x = 2 \text{ or } x = 3"), (r"\pm 3", "x = 3 or x = -3"),
    ("(1,2),(3,4)", r"(3,4) \text{ and } (1,2)"), (r"2\le x\le 5", r"2 \leq x \leq 5"),
    ("[2, 5)", r"2 \le x < 5"), (r"(-\infty, 2)", "2 > t"), (r"[\sqrt{2},\infty)", r"x\ge\sqrt2"),
    ("3:45 PM", "3:45 p.m."), ("3:45", "03:45"), ("January 5", "january 5"),
    ("12 cm", "12 centimeters"), ("½", "0.5"), ("2½", "5/2"), ("\u20133", "-3"),
    ("1 234 567", "1234567"), ("1\u202f234", "1234"),
    (r"0.\bar{3}", "1/3"), ("x**2+2*x+1", "x^2+2x+1"), ("f(2)=3", "3"), ("AB = 3", "3"),
    (r"\text{Area}=3", "3"), ("total cost = 3", "3"), (r"\angle ABC = 60^\circ", "60"),
    ('"42"', "42"), (r"\theta=30^\circ", "30"), ("|z| = 2", "2"), ("2^{-3}", "2**-3"),
    ("5 ft^2", "5 square feet"), ("25%", "25 percent"), ("5 hrs", "5 hours"), ("£5", "5 pounds"),
    (r"\( \frac{1}{\sqrt{3}} \)", r"\frac{\sqrt{3}}{3}"),
    (r"\(2\sqrt{3}\text{ cm}\).", r"\sqrt{12}"),
    (r"\[ x^2+1 \]", "1+x^2"), (r"\frac2\pi", r"\frac{2}{\pi}"), (r"\frac \pi 2", r"\pi/2"),
    (r"1-\frac{2}\pi", r"\frac{\pi-2}{\pi}"), (r"\frac x{2}", "x/2"), (r"\frac1{n+1}", "1/(n+1)"),
    ("5 or 4", "4,5"), ("5, 4", "4,5"), (r"\{4, 5\}", "5,4"), ("4 and 5", r"\(5,4\)"),
    (r"60\degree", r"60^{\circ}"), (r"60\degrees", "60"), ("±2", r"\pm 2"), ("±√3", r"\pm\sqrt{3}"),
    ("3:45 PM", r"\text{3:45 PM}"), (r"x \leqslant 3", r"(-\infty, 3]"),
    (r"a\geqslant 2", r"a \ge 2"), (r"-\frac{1}{2} < x \leq 1", r"1 \ge x > -0.5"),
    ("x>1/2", "0.5<x"), (r"x \ge 2", "x>=2"), ("[1, 3]", "1 <= x <= 3"),
    (r"y \leqslant \sqrt2", r"y <= \sqrt{2}"),
    (r"-\frac{1}{2} \leqslant x \leqslant 1", r"[-0.5, 1]"),
    (r"\{x \mid 1 < x < 2\}", r"\{x|1<x<2\}"),
    (r"x \neq 2", r"x \ne 2"), (r"x \ne 2", "x≠2"),
    ("ABD", "A, B, D"), ("ABD", r"\text{A, B and D}"), ("(A)(C)", "AC"), ("A,B", "AB"),
    ("AC", r"A \text{ and } C"),
    ("AD", r"\textbf{(A)}, \textbf{(D)}"),
    ("5 m, 300 km", "300 km, 5 m"), ("3 boys and 5 girls", "5 girls, 3 boys"),
    ("3 cm, 5", "5 cm, 3 cm"),
    ("30 minutes and 2 hours", "2 hours and 30 minutes"), ("3 red, 3 blue", "3 blue, 3 red"),
    ("x=1 or x=2", "x=1,2"), ("1, 2", "x = 2,1"), ("x=1,2", "1, 2"),
    ("d = 5 km or 5000 m", "5 km"), ("d = 5 km or d = 5000 m", "d=5000 m"),
    ("p = 1/4 or 25%", "25%"), (r"\theta = 60^\circ or \pi/3", r"\pi/3"),
]  # fmt: skip
DIFFERENT = [
    (r"0.\overline{3}", "0"), (r"0.\overline{6}", r"0.\overline{3}"), ("6!", "6"),
    (r"1-\mathrm{i}", "1"), (r"4\sqrt(2)", "4"), (r"\{x \mid x > 2\}", r"\{x \mid x < 2\}"),
    ("b>q>c", "b>a>c"), ("x = 5", "y = 5"), ("3 cm^2", "3 cm^3"), ("3 cm", "3 m"), ("2:3", "4:6"),
    ("2:3", "2"), ("x!", "x"), (r"\lfloor x \rfloor", "x"), (r"|x|", "x"), ("yes", "no"),
    (r"\overline{AB}", "AB"), (r"f'(x)", "f(x)"), ("4, 5", "4"), ("a<b", "a>b"), ("3 or 4", "5"),
    (r"x^{2}", "x^3"), ("-x", "x"), (r"\sqrt[3]{2}", r"\sqrt{2}"), ("(1, 2)", "[1, 2]"),
    (r"\frac{dy}{dx}=2x", r"\frac{dy}{dx}=4x"), (r"\frac{1}{2}!", r"\frac{1}{2}"), ("5'", "5"),
    (r"n \equiv 1 \pmod 4", r"n \equiv 1 \pmod 5"), ("1e8", "8e"), ("12 m/s", "12 km/s"),
    (r"\angle A=60^\circ", r"\angle B=60^\circ"), ("10:30 AM", "10:30 PM"),
    ("2 hours 30 minutes", "2 hours"), ("5 or 6", "5 or 7"), ("x_1", "x_2"),
    (r"\binom{5}{2}", "5"), (r"52_8", "52"), ("true", "false"),
    (r"2k\pi, k\in Z", r"3k\pi, k\in Z"), (r"2k\pi, k\in Z", r"2n\pi, n\in N"),
    (r"2k\pi, k\in Z", r"2n\pi"), (r"2k\pi, k\in Z", r"2k\pi, n\in Z"), (r"2k\pi", r"2n\pi"),
    (r"2k\pi+n, k\in Z", r"2n\pi+n, n\in Z"), (r"n\pi+a, n\in Z", r"a\pi+n, a\in Z"),
    (r"x \in [0,1]", r"y \in [0,1]"), (r"\frac{1}{2", "1/2"), ("(5", "5"),
    (r"\sqrt{2", r"\sqrt{2}"), ("x+1)", "x+1"), ("((x+1)", "x+1"), ("[1,2", "[1,2]"),
    (r"4 \times 10^{-5", r"4 \times 10^{-5}"), ("[x-1)^2", "(x-1)^2"), ("(A", "A"),
    (r"\geq 3", "3"), (r"\le 3", "3"), (r"\ge\sqrt{2}", r"\sqrt{2}"),
    (r"3\times", "3"), ("3+", "3"),
    ("x+y=3", "3"), ("2x=6", "6"), ("x^2+y^2=4", "4"), ("2**3", "23"), ("4__2", "42"),
    (r"4\,2", "42"), ("4`2", "42"), ("4$2", "42"), (r"1\,23", "123"), ("12 34", "1234"),
    ("x**2", "2x"), ("$12.50", "€12.50"), (r"\$5", "5 cents"), (r"30^\circ", "30 radians"),
    ("5 square feet", "5 feet"), (r"25\%", "25 dollars"), ("5 cubic feet", "5 ft^2"),
    ("3 sevenths", "3"), ("not x = 3", "3"), ("AB = 3", "BC = 3"), ("f(2)=3", "f(3)=3"),
    ("(C) and (D)", "C"), ("(C)(D)", "C"), ("C) and (D)", "C"),
    (r"\emptyset", "0"), ("[2, 5]", r"2 < x \le 5"), (r"(2, \infty)", "x < 2"),
    ("[2, 5]", r"2 < x > 5"),
    ("2024-01-05", "2024-01-06"), ("January 5", "January 6"), ("3:45 AM", "3:45 p.m."),
    ("2, 3", "x=2 or x=4"), (r"x \ge 3", "3"),
    (r"\( \frac{1}{\sqrt{3}} \)", r"\frac{1}{\sqrt{2}}"), (r"\frac132", r"\frac{13}{2}"),
    (r"\frac2\pi", r"\frac\pi2"), (r"\frac1{n}+1", r"\frac{1}{n+1}"),
    (r"\frac d{dx}5", "0"), ("4, 5", "5,6"), ("(4, 5)", "5,4"), ("1, 2", "1.2"),
    (r"x \leqslant 3", r"x < 3"), (r"a\geqslant 2", r"a\leqslant 2"),
    (r"-\frac{1}{2} < x < 1", "-0.5 < y < 1"), ("1<x<2", r"1 \le x < 2"), ("x>1/2", "x<0.5"),
    ("1<x<2", "1<x<3"), ("ABD", "A, B"), ("ABD", "ABCD"),
    ("AB", "BA"), ("ABD", "A, B, C"), ("AB", "(A, B)"), ("AB", "A or B"), ("AB", "A"),
    (r"60\degree", r"50\degree"), ("±2", "2"),
    ("5 or 6", "5,7"), ("45 or 6", "4,5"),
    (r"\sqrt2", "x>=sqrt(2)"), (r"\sqrt2", r"\sqrt{8} >= \sqrt{2}"), (r"x \ge 2", "x<=2"),
    (r"x \neq 2", r"x \ne 3"), (r"x \neq 2", "2"), (r"x \neq 2", "x=2"),
    ("300 km, 5 m", "5 km, 300 m"), ("3 boys and 5 girls", "5 boys and 3 girls"),
    ("10%, 5", "5%, 10"),
    ("30 hours and 2 minutes", "2 hours and 30 minutes"), ("3 red, 4 blue", "3 blue, 4 red"),
    ("x=1 or x=2", "x=1"), (r"x = 1 \text{ or } x = 2", "2"), ("x=1 or 2", "1"),
    ("x=1 or x=2", "1, 3"), ("x=1 or x=2", "x=1,3"), ("x=1,234", "1, 234"),
    ("t=1 s or t=3 s", "1 s"), ("f(x) = x or f(x) = 2-x", "f(x) = x"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_one_value_in_two_notations_is_equal_whichever_is_gold(one: str, other: str) -> None:
    assert answers_match(one, other) or "=" in one
    assert answers_match(other, one)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_two_values_are_not_equal_whichever_is_gold(one: str, other: str) -> None:
    assert not answers_match(one, other)
    assert not answers_match(other, one)


@pytest.mark.parametrize("gold", sorted({gold for pair in [*EQUAL, *DIFFERENT] for gold in pair}))
def test_every_gold_that_can_be_read_equals_itself(gold: str) -> None:
    assert answers_match(gold, gold) or read_gold(gold) is None


CHOICES = ("C", "(C)", "C)", "C.", r"\text{C}", r"\textbf{(C)}", r"\text{(C)}", "(C) 12", "C: 12",
           "C. twelve")  # fmt: skip


@pytest.mark.parametrize("gold", CHOICES)
def test_a_choice_is_its_letter_in_every_notation(gold: str) -> None:
    assert read_gold(gold) == gold
    assert read_gold(f"Answer: {gold}") == read_gold(rf"\boxed{{{gold}}}") == gold
    for answer in CHOICES:
        assert answers_match(answer, gold)
        assert is_correct(rf"So it is \boxed{{{answer}}}", gold)
        assert is_correct(f"Thus.\nAnswer: {answer}", gold)
    for answer in ("D", "(D) 12", "13", "c", "CD", "A, C", "not C", "A cat"):
        assert not answers_match(answer, gold)
    assert answers_match("12", gold) == ("12" in gold)


@pytest.mark.parametrize(
    "gold",
    ["yes", "True", "Monday", "blue whale", "[5]", "2:3", "4,5", "3 or 4", r"x=1 \text{ or } x=2",
     "12 (apples)", "2024-01-05", "12/25/2020", "Jan 5, 2020", "\u0664\u0662", "∞", "π",
     r"\infty", "B", "10 (m/s)"],
)  # fmt: skip
def test_a_gold_answer_in_every_notation_can_be_read(gold: str) -> None:
    assert read_gold(gold) == gold
    assert answers_match(gold, gold)


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ("42", "The final answer is:\n\n42"), ("42", "**The answer is:**\n**42**"),
        ("42", r"\boxed {42}"), ("42", "The answer is therefore 42."),
        ("42", "The answer is **42**."), ("42", "The answer is equal to 42."),
        ("C", "Answer: [C]"), ("C", r"\boxed{(C) \frac{1}{2}}"),
        ("C", "The answer is Option C: 12"),
        ("D", "The answer is D. Both A and B"),
    ],
)  # fmt: skip
def test_an_answer_stands_where_people_write_it(gold: str, text: str) -> None:
    assert is_correct(text, gold)


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ("3", "The answer is 3; 4"), ("3", "The answer is x = 3; y = 4"), ("3", "Answer: 3 or 4"),
        ("C", r"\boxed{(C) or (D)}"), ("C", "Answer: C. or D."), ("C", "Answer: (C), (D)"),
    ],
)  # fmt: skip
def test_a_list_of_answers_is_not_its_first(gold: str, text: str) -> None:
    assert not is_correct(text, gold)


@pytest.mark.parametrize("gold", ["", "nan", "it is hard to say what", "?", "#### ", "-"])
def test_what_is_no_answer_cannot_be_read(gold: str) -> None:
    assert read_gold(gold) is None


def test_either_of_two_gold_answers_is_right() -> None:
    assert answers_match("3", "3 or 4")
    assert answers_match("4", r"3 \text{ or } 4")
    assert answers_match("1/2", "x = 0.5 or x = 1/2")
    assert not answers_match("3 or 4", "3")


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("[7]", "7"),
        (r"\{7\}", "7"),
        (r"\emptyset", r"\{\}"),
        ("16 (cm)", "16"),
        ("4,5", "5, 4"),
        ("4 (carrots); 5 (beans)", "4, 5"),
        (r"24\mathrm{~}^2", "24 cm^2"),
        (r"2.5\mathrm{~}/\mathrm{}", "2.5 km/h"),
    ],
)
def test_notations_of_a_gold_answer_alone_are_read(gold: str, answer: str) -> None:
    assert answers_match(answer, gold)
    assert answers_match(gold, gold)


def test_what_is_left_of_a_lost_unit_is_no_power() -> None:
    assert not answers_match("576", r"24\mathrm{~}^2")
    assert not answers_match("25", r"24\mathrm{~}^2")


def test_an_exclamation_mark_ends_a_sentence_and_is_a_factorial_elsewhere() -> None:
    assert is_correct("The answer is 6!", "6")
    assert is_correct("#### 6!", "720")
    assert not is_correct("#### 6!", "6")


@pytest.mark.parametrize(
    "answer",
    ["(1, 2", "5)", "{5", r"\frac{1}{2", r"\sqrt{2", "((x+1)", "[x-1)^2", r"10^{-5 \cdot 2"],
)
def test_with_a_bracket_that_is_not_closed_nothing_can_be_read(answer: str) -> None:
    assert read_answer(answer) is None


def test_answers_for_every_integer_are_one_in_a_vote() -> None:
    answers = (r"2k\pi, k\in\mathbb{Z}", r"2n\pi, n \in Z", r"2m\pi (m∈ℤ)")
    assert len({read_answer(answer) for answer in answers}) == 1


def test_digits_of_other_scripts_are_numbers_in_a_gold_answer_alone() -> None:
    assert answers_match("42", "\u0664\u0662")
    assert not answers_match("\u0664\u0662", "42")


@pytest.mark.parametrize(
    "line",
    ["Answer: 42", "answer: 42", "Final Answer: 42", "The final answer: $42$", "**Answer:** 42",
     "### Answer: 42", "> Answer: 42.", "答案：42", "最终答案: 42", "Réponse : 42",
     "Réponse finale : 42", "Antwort: 42", "Respuesta: 42", "Ответ: 42"],
)  # fmt: skip
def test_an_answer_is_stated_on_a_line_of_its_own(line: str) -> None:
    assert is_correct(f"6 * 7 = 42\n{line}", "42")
    assert not is_correct(f"{line}\nAnswer: 41", "42")
    assert extract_answer(f"He says the {line}") is None


CHANGES = {
    "digit": re.compile(r"\d"),
    "variable": re.compile(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])"),
    "operator": re.compile(
        r"(?<=[\w)}]) ?[-+/<>] ?(?=[\w\\(])|\\(?:le|ge|cup|cap|sin|cos|pm|cdot|times)(?![A-Za-z])"
    ),
    "exponent": re.compile(r"\^"),
    "end": re.compile(r"^[(\[]|[)\]]$"),
    "bracket": re.compile(r"(?<!\\)[()\[\]{}]"),
}
"""Kind of a change -> the places in a gold answer that it changes."""
SWAPS = {
    "(": "[", "[": "(", ")": "]", "]": ")", "+": "-", "-": "+", "/": "+", "<": ">", ">": "<",
    r"\le": r"\ge ", r"\ge": r"\le ", r"\cup": r"\cap ", r"\cap": r"\cup ", r"\sin": r"\cos ",
    r"\cos": r"\sin ", r"\pm": "+", r"\cdot": "+", r"\times": "+",
}  # fmt: skip


def mutate(gold: str, kind: str, rng: random.Random) -> str:
    """Another answer: at one place a digit, a variable, an operator, ... is changed or left out."""
    places = list(CHANGES[kind].finditer(gold))
    if not places:
        return gold
    place = rng.choice(places)
    text, new = place[0], ""
    if kind == "digit":
        new = str((int(text) + rng.randint(1, 8)) % 9 + 1)
        new = new if new != text else str(int(text) % 9 + 1)
    elif kind == "variable":
        new = "w" if text.lower() != "w" else "v"
        new = new.upper() if text.isupper() else new
    elif kind in ("operator", "end"):
        new = SWAPS[text.strip()]
    return gold[: place.start()] + new + gold[place.end() :]


def is_excepted(gold: str, other: str) -> bool:
    r"""Whether they are equal for a reason.

    At infinity an interval has no end that a bracket could include; `C)` and `(E) 13` are the
    choices C and E.
    """
    is_interval = "infty" in gold and gold[1:-1] == other[1:-1]
    choice = read_choice(gold)
    return is_interval or (choice is not None and choice == read_choice(other))


def read_math500() -> list[str]:
    return [json.loads(line)["answer"] for line in MATH500.read_text().splitlines()]


@pytest.mark.slow
def test_no_mutated_gold_of_math500_equals_it_one_of_each_shape() -> None:
    """Of golds that differ in digits alone one is mutated."""
    shapes = {re.sub(r"\d+", "1", gold): gold for gold in reversed(read_math500())}
    assert find_equal_mutations(list(shapes.values()), both=False) == []


@pytest.mark.slow
def test_no_mutated_gold_of_math500_equals_it() -> None:
    assert find_equal_mutations(read_math500(), both=True) == []


def test_golds_in_other_notations_are_read_and_equal_themselves() -> None:
    assert len(BY_HAND) >= 150
    assert [gold for gold in BY_HAND if read_gold(gold) != gold] == []
    assert [gold for gold in BY_HAND if not answers_match(gold, gold)] == []


@pytest.mark.slow
def test_no_mutated_gold_in_other_notations_equals_it() -> None:
    assert find_equal_mutations(BY_HAND, both=True) == []


def find_equal_mutations(golds: Sequence[str], *, both: bool) -> list[tuple[str, str]]:
    """Pairs of a gold and a mutation of it, in each kind once, that the checker calls equal.

    With `both` the mutation is a gold, too, and the gold an answer.
    """
    rng, equal = random.Random(0), list[tuple[str, str]]()
    for gold in golds:
        for other in sorted({mutate(gold, kind, rng) for kind in CHANGES} - {gold}):
            is_equal = answers_match(other, gold) or (both and answers_match(gold, other))
            if is_equal and not is_excepted(gold, other):
                equal.append((gold, other))
    return equal


@pytest.mark.parametrize(
    ("gold", "answer", "is_right"),
    [
        ("x+y=3", "x+y=3", True), ("x+y=3", "y+x=3", True), ("x+y=3", "x=3", False),
        ("x+y=3", "y=3", False), ("a+b+c=10", "total=10", False), (r"\sin x=1", "x=1", False),
        (r"\sin x=1", "1", True), ("x/2+y/3=1", "x=1", False), (r"\log x=2", "x=2", False),
        ("xy=6", "xy=6", True), ("xy=6", "yx=6", True), ("xy=6", "6", False),
        ("xy=6", "x=6", False), ("xy=6", "z=6", False), ("x y=6", "6", False),
        (r"x \cdot y=6", "6", False), (r"x \cdot y=6", "x=6", False), ("2x=6", "x=6", False),
        ("xy=0", "x=0", False), ("xy=z+1", "z+1", False), ("xy=z+1", "xy=1+z", True),
        ("a_{mn}=x+1", "x+1", True), ("AB = 3", "3", True), (r"\cos A=1/2", "1/2", True),
        (r"x=-\infty", r"x=\infty", False), (r"x=-\infty", r"x=-\infty", True),
        (r"x=-\infty", r"-\infty", True), (r"x=-\infty", r"\infty", False),
        ("x=∞", r"x=\infty", True), (r"x=\infty, y=1", r"x=-\infty, y=1", False),
    ],
)  # fmt: skip
def test_the_right_side_of_an_equation_is_no_answer_where_the_left_is_no_name(
    gold: str, answer: str, is_right: bool
) -> None:
    assert is_correct(rf"\boxed{{{answer}}}", gold) is is_right


@pytest.mark.parametrize(
    ("gold", "answer", "is_right"),
    [
        ("9.8", r"9.8\,\mathrm{m/s^2}", True), ("9.8", r"9.9\,\mathrm{m/s^2}", False),
        (r"9.8 \text{ m/s}^2", r"9.8\,\text{m/s}^2", True),
        (r"9.8 \text{ m/s}^2", r"9.8\,\text{m/s}", False), ("9", "9m/s^2", False),
        ("9.8", "9.8 m/s^2", True), ("98", "9.8 m/s^2", False),
        (r"\sqrt{2}", r"\sqrt{2}\,\mathrm{m/s^2}", True),
        ("5", r"5\text{ J}", True), ("5", r"5\,\mathrm{N}", True), ("5 N", "5", True),
        ("5 J", "5", True), ("5 J", "5 N", False), ("5N", "5", False), ("5 N", "6", False),
        ("24", r"\textbf{(B)}\ 24", True), ("24", "(B) 24", True), ("24", "(B) 25", False),
        ("2B", "(B) 2", False), ("5", "(5)", False), ("24", "(B) or (C) 24", False),
        (r"\textbf{(B)} 24", "24", True), (r"\textbf{(B)} 24", "B", True),
        (r"\textbf{(B)} 24", "(C) 24", False), (r"\textbf{(B)} 24", "25", False),
        ("A", r"A.\ 5", True), ("A", r"B.\ 5", False), ("A", r"A.\quad 5", True),
        ("3/4", "3/4 of a cup", True), ("3/4", "3/5 of a cup", False), ("3/4", "3/4 of x", False),
        ("3/4", "3/4 of a dozen", False), ("50", "50% of the students", True),
        ("50", "50 of one", False),
        (r"(-\infty,-1)\cup(1,\infty)", r"x<-1 \text{ or } x>1", True),
        (r"(-\infty,-1)\cup(1,\infty)", r"x \le -1 \text{ or } x>1", False),
        (r"(-\infty,-1)\cup(1,\infty)", r"x<-1 \text{ or } y>1", False),
        (r"(-\infty,-1)\cup(1,\infty)", "x<-1", False),
        ("x<-1 or x>1", r"(-\infty,-1)\cup(1,\infty)", True), ("x<-1 or x>1", "x>1", False),
        ("x<-1 or x>1", "x>1, x<-1", True), ("x<-1 or x>1", "x>1 or x<-1", True),
    ],
)  # fmt: skip
def test_a_value_beside_a_unit_a_letter_or_a_whole(gold: str, answer: str, is_right: bool) -> None:
    assert read_gold(gold) == gold
    assert is_correct(rf"\boxed{{{answer}}}", gold) is is_right


@pytest.mark.parametrize(
    ("gold", "answer", "is_right"),
    [
        (r"\pi r^2 h", r"\pi h r^2", True), (r"\pi r^2 h", r"\pi r^2", False),
        ("2x+3t", "2x+3", False), ("2x+3", "2x+3t", False), ("5t", "5", False), ("5t", "t5", False),
        ("x^2 + c", "x^2", False), ("8", "5 + 3d", False), ("5 + 3d", "8", False),
        ("x^2 + C", "x^2+c", True), ("x^2 + C", "x^2", False), ("x^2+c", "x^2+d", False),
        ("ab+c", "c+ab", True),
        ("2ab", "2ba", True), ("2ab", "2", False), (r"\sqrt{3} mg", r"\sqrt{3}", False),
        (r"3\sqrt{2} m", r"3\sqrt{2}", False), (r"3\sqrt{2}", r"3\sqrt{2} m", True),
        (r"3\sqrt{2}", r"\sqrt{18} cm", True), (r"3\sqrt{2} cm", r"\sqrt{18}", True),
        (r"3\sqrt{2} cm", r"\sqrt{18} m", False), (r"3\sqrt{2}\text{ cm}", r"\sqrt{18} km", False),
        (r"16\pi", r"2\pi \cdot 8 square feet", True), (r"16\pi", r"2\pi \cdot 7 m^2", False),
        ("60t", "60t miles", True), ("f(x) is even", "f(x) is odd", False),
        (r"3\sqrt{2}", r"3\sqrt{2}cm", True), (r"3\sqrt{2}", r"3\sqrt{2}\,cm", True),
        (r"3\sqrt{2}", r"3\sqrt{2}\ \text{cm}", True), (r"3\sqrt{2}", r"\sqrt{18} cm²", True),
        (r"3\sqrt{2}", r"\sqrt{18}m", True), (r"10\pi", "10πcm", True), (r"10\pi", "11πcm", False),
        (r"\frac{x}{2}", r"\frac{x}{2}ml", False), (r"\frac{x}{2}ml", r"\frac{x}{2}", False),
        (r"3\sqrt{2} cm", r"\sqrt{18}km", False),
    ],
)  # fmt: skip
def test_letters_at_the_end_are_factors_unless_they_are_a_unit(
    gold: str, answer: str, is_right: bool
) -> None:
    assert is_correct(rf"\boxed{{{answer}}}", gold) is is_right


@pytest.mark.parametrize(
    ("gold", "answer", "is_right"),
    [
        ("6", "xyz=6", False), ("6", "abc = 6", False), ("6", "pqr=6", False),
        ("xyz=6", "6", False), ("xyz=6", "yzx=6", False), ("xyz=6", "xyz=12/2", True),
        ("6", "6 xyz", False),
        ("2xyz", "2zyx", True), ("2xyz", "2xy", False), (r"\sqrt{2gh}", r"\sqrt{2hg}", True),
        (r"\sqrt{2gh}", r"\sqrt{2g}", False), (r"\frac{GMm}{r^2}", "GMm/r^2", True),
        (r"\frac{GMm}{r^2}", "GM/r^2", False),
        ("6", "total=6", True), ("6", "max = 6", True), ("6", "gcd = 6", True),
        ("6", "day=6", True), ("12", "12 ants", True), ("7", "7 tens", False),
        ("7", "7 mln", False),
        ("7", "7 kms", True), ("7 km", "7kms", True), ("7", "7 kms/hr", True), ("7", "7 bps", True),
        ("7", "npv = 7", True), ("7", "rate in mps = 7", True), ("7", "7 kmx", False),
        ("7", "7 sq ft", True), ("7 square feet", "7 sq. ft.", True), ("7", "7 sq", False),
        ("7 sq ft", "7 cu ft", False), ("7", "7 sq units", True), ("7", "7 sq r", False),
    ],
)  # fmt: skip
def test_several_variables_are_a_product_and_no_name(
    gold: str, answer: str, is_right: bool
) -> None:
    assert is_correct(rf"\boxed{{{answer}}}", gold) is is_right


@pytest.mark.parametrize(
    ("gold", "answer", "is_right"),
    [
        ("1 kg 200 g", "1 kg 200 g", True), ("1 kg 200 g", "200 kg 1 g", False),
        ("5h 30m", "5h30m", True), ("5h 30m", "30h 5m", False), ("5m 30s", "30m 5s", False),
        ("2 kg 500 gm", "500 kg 2 gm", False), ("2 m 5 cm", "5 m 2 cm", False),
        ("3 hrs 20 mts", "3 hrs and 20 mts", True), ("3 hrs 20 mts", "20 hrs 3 mts", False),
        ("10 cm x 12 cm", "20 cm x 6 cm", False), ("10 by 12", "20 by 6", False),
        ("5 R 2", "5R2", True), ("5 R 2", "2 R 5", False), ("5 R 2", "10 R 1", False),
        ("10 by 12", "12 by 10", False), ("ax + by = 0", "by+ax=0", True),
        ("2x3y", "6xy", True), (r"2\sqrt{3} x", r"\sqrt{12}x", True),
    ],
)  # fmt: skip
def test_quantities_of_several_units_are_no_product(gold: str, answer: str, is_right: bool) -> None:
    assert is_correct(rf"\boxed{{{answer}}}", gold) is is_right


@pytest.mark.parametrize(
    ("gold", "answer", "is_right"),
    [
        (r"3\sqrt{2}", r"AB = \sqrt{18}", True), (r"3\sqrt{2}", r"AB = \sqrt{8}", False),
        (r"25\pi", r"Area = 5\pi \cdot 5 cm^2", True), (r"25\pi", r"area = 24\pi", False),
        ("2x+3", "total cost = 3+2x", True), ("2x+3", "total cost = 3+4x", False),
        (r"AB=3\sqrt{2}", r"\sqrt{18}", True), (r"AB=3\sqrt{2}", r"AC=3\sqrt{2}", False),
        (r"3\sqrt{2}", r"not area = \sqrt{18}", False), ("x+y", "area = x+y = 5", False),
    ],
)  # fmt: skip
def test_an_expression_may_have_a_name_in_words(gold: str, answer: str, is_right: bool) -> None:
    assert is_correct(rf"\boxed{{{answer}}}", gold) is is_right


@pytest.mark.parametrize(
    ("gold", "answer", "is_right"),
    [
        ("(1,2)", "x=1, y=2", True), ("(1,2)", "y=2 and x=1", True), ("(1,2)", "x=2, y=1", False),
        ("(1,2)", "x=1, z=2", False), ("[1,2]", "x=1, y=2", False), ("(1,2)", "x=0+1,y=2", False),
        ("x=1, y=2", "(1,2)", True), ("x=1, y=2", "(2,1)", False), ("3", "x=1, y=2", False),
        ("(1,2,3)", "x=1, y=2, z=3", True), ("(1,2,3)", "x=1, y=2", False),
        ("1, 2", "x_1=2, x_2=1", True), ("1, 2", "x_{1}=2, x_{2}=3", False),
        ("1, 2", "x=1, y=2", False), ("x_1=1, x_2=2", "1, 2", True),
        ("x_1=1, x_2=2", "2, 1", False),
    ],
)  # fmt: skip
def test_named_values_are_a_pair_in_the_order_of_their_letters_or_a_list_by_number(
    gold: str, answer: str, is_right: bool
) -> None:
    assert is_correct(rf"\boxed{{{answer}}}", gold) is is_right


@pytest.mark.parametrize(
    ("gold", "answer", "is_right"),
    [
        ("no solution", "No solutions", True), (r"\text{No solution}", r"\emptyset", True),
        (r"\emptyset", "no solution", True), (r"\emptyset", "empty set", True),
        ("no real solutions", "no real solution", True), ("no solution", "one solution", False),
        ("no solution", "0", False), (r"\emptyset", "no", False),
        ("DNE", r"\text{does not exist}", True), ("DNE", "0", False),
        (r"(-\infty,\infty)", r"\mathbb{R}", True), ("all real numbers", r"\mathbb{R}", True),
        (r"(-\infty,\infty)", r"(-\infty,0)", False), (r"\mathbb{R}", r"\mathbb{Z}", False),
        (r"(-\infty,3)", "(-inf, 3)", True), (r"(-\infty,3)", "(inf, 3)", False),
        ("1 hour 30 minutes", "1 hour and 30 minutes", True),
        ("1 hour 30 minutes", "1 hour and 31 minutes", False),
        (r"\cfrac{1}{2}", "0.5", True), ("42", r"\underline{42}", True),
        ("42", r"\boldsymbol{43}", False), (r"\frac{\pi}{2}", r"\cfrac{\pi}{2}", True),
        (r"\frac{\pi}{2}", r"\cfrac{\pi}{3}", False),
    ],
)  # fmt: skip
def test_well_known_sets_and_values_have_several_spellings(
    gold: str, answer: str, is_right: bool
) -> None:
    assert is_correct(rf"\boxed{{{answer}}}", gold) is is_right


@pytest.mark.parametrize(
    ("gold", "answer", "is_right"),
    [
        ("January 5, 2024 10:00 UTC", "January 5, 2024 10:00 UTC", True),
        ("January 5, 2024 10:00 UTC", "january 5 2024 10:00 utc", True),
        ("January 5, 2024 10:00 UTC", "January 5, 2024 10:00 GMT", False),
        ("January 5, 2024 10:00 UTC", "January 5, 2024 11:00 UTC", False),
        ("2024-01-05 UTC", "2024-01-05 UTC", True), ("2024-01-05 UTC", "2024-01-06 UTC", False),
        ("2024-01-05T10:00:00+02:00", "2024-01-05T10:00:00+02:00", True),
        ("2024-01-05T10:00:00+02:00", "2024-01-05T10:00:00+03:00", False),
        ("3:00 PM EST", "3:00 p.m. EST", True), ("3:00 PM EST", "3:00 a.m. EST", False),
        ("3:00 PM EST", "3:00 PM PST", False), ("July 4, 1776", "July 4th 1776", True),
        ("July 4, 1776", "July 14, 1776", False), ("July 4, 1776", "July 4, 1777", False),
    ],
)  # fmt: skip
def test_a_date_may_have_a_time_and_a_zone(gold: str, answer: str, is_right: bool) -> None:
    assert read_gold(gold) == gold
    assert is_correct(rf"\boxed{{{answer}}}", gold) is is_right


@pytest.mark.parametrize(
    "answer",
    [r"\approx 3.14", "≈3.14", r"x \approx 3.14", r"\approx \$3.14",
     "approximately 3.14", "about 3.14", r"\text{about } 3.14\text{ cm}"],
)  # fmt: skip
def test_nearly_a_number_is_that_number_and_no_other(answer: str) -> None:
    assert is_correct(rf"\boxed{{{answer}}}", "3.14")
    assert is_correct(r"\boxed{3.14}", answer)
    assert not is_correct(rf"\boxed{{{answer}}}", r"\pi")
    assert not is_correct(rf"\boxed{{{answer}}}", "3.1")
    assert not is_correct(rf"\boxed{{{answer.replace('3.14', '3.15')}}}", "3.14")


@pytest.mark.parametrize("gold", ["5 p.m.", "5 pm", "5 PM", r"5 \text{ p.m.}"])
def test_the_half_of_the_day_counts_in_every_spelling(gold: str) -> None:
    assert is_correct(r"\boxed{5 p.m.}", gold)
    assert is_correct(r"\boxed{5 PM}", gold)
    assert is_correct(r"\boxed{5}", gold)
    assert not is_correct(r"\boxed{5 am}", gold)
    assert not is_correct(r"\boxed{5 a.m.}", gold)
    assert not is_correct(r"\boxed{6 p.m.}", gold)


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        (r"\boxed{5} and \boxed{6}", "5, 6"), (r"$\boxed{5}$, $\boxed{6}$", "5, 6"),
        (r"\boxed{\frac{1}{2}}, \boxed{3} or \boxed{4}", r"\frac{1}{2}, 3, 4"),
        (r"\boxed{5}. \boxed{6}", "6"), (r"\boxed{5}, so y = \boxed{6}", "6"),
        ("1,23,456", None), ("₹1,23,456.50", None), ("1,000,00", None), ("1,5 Millionen", None),
        ("1,5e3", None), ("#### 1,23,456", None), ("1, 23, 456", "1, 23, 456"), ("4,5", "4,5"),
        ("1,2,3", "1,2,3"), ("5,7,100", "5,7,100"), ("1,234,567", "1,234,567"),
        ("1,500 apples", "1,500 apples"), ("2,3 or 4", "2,3 or 4"), ("(1,5)", "(1,5)"),
    ],
)  # fmt: skip
def test_a_gold_answer_is_read_whole_or_not_at_all(text: str, gold: str | None) -> None:
    assert read_gold(text) == gold


def test_joined_boxes_are_one_list() -> None:
    text = r"So x is \boxed{5} and \boxed{6}."
    assert is_correct(text, "5, 6")
    assert is_correct(text, "6, 5")
    assert not is_correct(text, "6")
    assert is_correct(r"It is \boxed{6}, \boxed{6}.", "6")
