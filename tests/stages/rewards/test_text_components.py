import pytest
from answers import Answers

from stages.rewards import text_components
from stages.rewards.text_components import is_boxed, script_share


def test_each_completion_is_checked_against_its_own_prompts_answer():
    texts = ["3 + 4 = 7\n#### 7", "#### 8", "#### 8", "no idea"]
    drawn = Answers(texts=texts, golds=["7", "8"], group_size=2)
    assert text_components.answer(drawn).totals == [1.0, 0.0, 1.0, 0.0]


def test_working_and_then_one_line_whether_right_or_not():
    drawn = Answers(["3 + 4 = 8\n#### 8", "#### 7", "3 + 4 = 7\n#### 7\n", "7", ""])
    assert text_components.final_line(drawn).totals == [1.0, 0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{42}", True),
        (r"so \boxed{42}. Done.", True),
        (r"\boxed{\frac{3}{4}}", True),
        (r"\boxed {7}", False),
        (r"\boxed 7", False),
        (r"\boxed{}", False),
        (r"\boxed{7", False),
        (r"\boxed{1} or \boxed{2}", False),
        (r"\boxed{7} #### 7", False),
        (r"\boxed{perhaps seven}", False),
        ("#### 7", False),
        ("", False),
    ],
)
def test_one_readable_answer_in_one_box(text, expected):
    assert is_boxed(text) is expected


WHOLE = "<think>3 + 4 = 7</think>\n<answer>7</answer>"


@pytest.mark.parametrize(
    ("text", "whole", "per_tag"),
    [
        (WHOLE, 1, 4),
        (f"\n{WHOLE}\n", 1, 4),
        (f"Well. {WHOLE}", 0, 4),
        (f"{WHOLE} Thanks!", 0, 4),
        ("<answer>7</answer><think>3 + 4</think>", 0, 4),
        ("<think>3 + 4</think><answer> </answer>", 0, 4),
        ("<think></think><answer>7</answer>", 0, 4),
        ("<think>a<think>b</think><answer>7</answer>", 0, 3),
        ("<answer>7</answer>", 0, 2),
        (WHOLE + WHOLE, 0, 0),
        ("", 0, 0),
    ],
)
def test_the_whole_format_or_each_tag_once(text, whole, per_tag):
    for credit, expected in (("whole", whole), ("per_tag", per_tag)):
        assert text_components.tags(Answers([text]), credit).totals == [expected]


@pytest.mark.parametrize(
    ("component", "numbers", "texts", "expected"),
    [
        ("length_penalty", {"per": 4}, ["", "a", "abcdefgh"], [0.0, -0.25, -2.0]),
        ("length_target", {"target": 4}, ["", "ab", "abcd", "abcdef"], [-1.0, -0.5, 0.0, -0.5]),
        # grows over the last tokens before the limit
        ("overlong", {"max_new_tokens": 8, "buffer": 4}, ["abcd", "abcde", "abcdefgh"],
         [0.0, -0.25, -1.0]),
    ],
)  # fmt: skip
def test_a_length_costs_by_hand(component, numbers, texts, expected):
    assert getattr(text_components, component)(Answers(texts), **numbers).totals == expected


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([1, 2, 3, 4], 0.0),
        # 12 23 31 12 23: two of five were there before
        ([1, 2, 3, 1, 2, 3], -0.4),
        # 11 four times: three of four
        ([5, 5, 5, 5, 5], -0.75),
        ([1], 0.0),
    ],
)
def test_the_share_of_bigrams_said_before(tokens, expected):
    drawn = Answers(["x"], tokens=[tokens])
    actual = text_components.ngram_repetition(drawn, n=2)
    assert actual.totals == [pytest.approx(expected)]


@pytest.mark.parametrize(
    ("text", "scripts", "share"),
    [
        ("Hello, wörld", ["latin"], 1.0),
        ("ab да", ["latin"], 0.5),
        ("ab да", ["latin", "cyrillic"], 1.0),
        ("答え a", ["cjk", "hiragana"], 2 / 3),
        ("コーヒー 人々", ["katakana", "cjk"], 1.0),
        ("らーめん", ["hiragana"], 1.0),
        ("コーヒー 人々", ["latin"], 0.0),
        ("3 + 4 = 7\n#### 7", ["latin"], 1.0),
        ("", ["latin"], 1.0),
        # look-alikes: a full-width a, a bold a, a Cyrillic a
        ("\uff41\U0001d41a\u0430a", ["latin"], 0.25),
    ],
)
def test_the_share_of_letters(text, scripts, share):
    assert script_share(text, scripts) == pytest.approx(share)
