from collections import Counter

import pytest

from stages.rewards.answer_checker import is_correct
from stages.rewards.feedback.judge_prompt import OPTIONS
from stages.rewards.feedback.principles_of_correctness import CORRECT
from stages.sources import feedback_tasks, word_problems
from stages.sources.feedback_tasks import MixtureConfig

SOURCE = word_problems.Config(
    kind="word_problems",
    num_problems=800,
    max_value=30,
    guess_share=0.3,
    slip_share=0.08,
    misconception_share=0.5,
)
PROBLEMS = list(word_problems.problems(SOURCE, 0))
ANSWERS = {problem.id: problem.answer for problem in PROBLEMS}


def make(problems=PROBLEMS, seed=0, **shares):
    config = MixtureConfig(
        **({"judge": 0.0, "critique": 0.0, "revise": 0.0, "max_prompt_tokens": 192} | shares)
    )
    return list(feedback_tasks.make(problems, config, max_value=30, seed=seed))


def quoted(message, mark):
    lines = [line for line in message.splitlines() if line.startswith(mark)]
    return "\n".join(line.removeprefix(mark).strip() for line in lines)


def test_the_numbers_are_the_shares():
    rows = make(judge=0.5, critique=0.25, revise=1.5)
    counts = Counter(row.task for row in rows)
    assert abs(counts["judge"] - 400) < 60
    assert abs(counts["critique"] - 200) < 50
    assert abs(counts["revise"] - 1200) < 60
    assert make() == []


def test_a_problems_examples_depend_on_nothing_but_seed_task_and_problem():
    rows = make(judge=0.5, revise=0.5)
    assert make(judge=0.5, revise=0.5) == rows
    assert make(judge=0.5) == [row for row in rows if row.task == "judge"]
    assert make(problems=PROBLEMS[5:], judge=0.5) == [
        row for row in make(judge=0.5) if row.id not in {p.id for p in PROBLEMS[:5]}
    ]
    assert make(judge=0.5, seed=1) != make(judge=0.5)


def test_the_better_answer_is_the_right_one_and_as_often_first_as_second():
    rows = make(judge=1.0)
    for row in rows:
        right = [is_correct(quoted(row.message, f"{n}:"), ANSWERS[row.id]) for n in OPTIONS]
        assert right == [option == row.reply for option in OPTIONS]
    first = sum(row.reply == "1" for row in rows)
    assert abs(first - 400) < 5 * 14.2
    principles = Counter(row.message.split(":")[0].removeprefix("Judge ") for row in rows)
    assert set(principles) == {principle.name for principle in CORRECT}


def test_length_gives_the_better_answer_away_in_one_pair_of_five():
    """Wrong answers with working are as long as right ones."""
    lengths = [
        tuple(len(quoted(row.message, f"{n}:").splitlines()) for n in OPTIONS)
        for row in make(judge=1.0)
    ]
    assert 0.75 < sum(a == b for a, b in lengths) / len(lengths) < 0.85


def test_critiques_are_few_words_and_revisions_are_right():
    critiques = Counter(row.reply for row in make(critique=1.0))
    assert {"No working.", "All lines are right.", "Line 1 is wrong."} <= set(critiques)
    assert all(text in {"No working.", "All lines are right."} or text.startswith("Line ")
               for text in critiques)  # fmt: skip
    for row in make(revise=1.0):
        assert is_correct(row.reply, ANSWERS[row.id])
        assert quoted(row.message, "!")
        if quoted(row.message, "!") == "All lines are right.":
            assert quoted(row.message, ">") == row.reply


def test_a_problem_of_another_source_is_refused():
    other = PROBLEMS[0].__class__(
        id="x", question="Why?", answer="1", solution=None, split=None, line=1
    )
    with pytest.raises(ValueError, match=r"problem 'x': expected a question that word_problems"):
        make(problems=[other], judge=1.0)
