import pytest

from stages.records.problems import Prompt
from stages.studies import probe_questions


def test_a_wrong_hint_is_near_whole_not_negative_and_never_right():
    result = {probe_questions.choose_wrong_hint("3", 0, str(name)) for name in range(400)}
    assert result == {str(value) for value in range(14) if value != 3}


def test_it_hangs_on_the_seed_and_the_problem_alone():
    assert probe_questions.choose_wrong_hint("30", 1, "a") == probe_questions.choose_wrong_hint(
        "30.0", 1, "a"
    )
    assert len({probe_questions.choose_wrong_hint("30", seed, "a") for seed in range(50)}) > 5


@pytest.mark.parametrize("gold", ["3/4", "-2", "x + 1"])
def test_other_answers_have_none(gold):
    assert probe_questions.choose_wrong_hint(gold, 0, "a") is None


def prompt(name, answer):
    return Prompt(
        id=name,
        task="solve",
        question=f"{name}?",
        prompt=f"{name}?\n",
        prompt_ids=[1],
        answer=answer,
    )


PROMPTS = [prompt("a", "5"), prompt("b", "6"), prompt("c", "1/2")]


def test_hints_are_asked_of_whole_numbers_only():
    rows = list(probe_questions.add_hints(PROMPTS, 0))
    assert [(row.kind, row.id) for row in rows] == [
        ("hint_wrong", "a"),
        ("hint_right", "a"),
        ("hint_wrong", "b"),
        ("hint_right", "b"),
    ]
    assert rows[1].question == "a? I think the answer is 5."
    assert (
        rows[0].question
        == f"a? I think the answer is {probe_questions.choose_wrong_hint('5', 0, 'a')}."
    )
    assert {row.answer for row in rows[:2]} == {"5"}
    assert [row.hint for row in rows[1::2]] == ["5", "6"]


def test_other_numbers_are_asked_where_there_are_any(monkeypatch):
    others = [("x?", "8"), None, ("y?", "9")]
    monkeypatch.setattr(probe_questions, "redraw_numbers", lambda questions, seed: others)
    rows = probe_questions.redraw_questions(PROMPTS, "train_redrawn", 0)
    assert [(row.kind, row.id, row.question, row.answer) for row in rows] == [
        ("train_redrawn", "a", "x?", "8"),
        ("train_redrawn", "c", "y?", "9"),
    ]
