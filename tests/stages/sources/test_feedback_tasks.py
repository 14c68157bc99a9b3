import random
from collections import Counter

import pytest

from stages.rewards.answer_checker import is_correct
from stages.rewards.feedback.principles import CORRECT
from stages.rewards.feedback.prompts import OPTIONS
from stages.rewards.step_solutions import true_step_labels
from stages.sources import feedback_tasks, word_problems
from stages.sources.feedback_tasks import MixtureConfig
from stages.sources.word_problems import Move

CONFIG = word_problems.WordProblemsConfig(
    kind="word_problems",
    num_problems=300,
    max_value=30,
    guess_share=0.0,
    slip_share=0.0,
    misconception_share=0.0,
)
PROBLEMS = list(word_problems.generate_problems(CONFIG, 0))
MOVES = [Move("+", 4), Move("*", 2), Move("-", 5)]


def kind(critique: str) -> str:
    return critique.rstrip(".").split()[-1]


def test_right_answers_are_right():
    for problem in PROBLEMS:
        start, moves = word_problems.read_question(problem.question)
        text = word_problems.write_working(start, moves, max_value=30)
        assert is_correct(text, problem.answer)


def test_a_guess_or_working_can_be_asked_for():
    rng = random.Random(0)
    for guessed in (True, False):
        for _ in range(50):
            answer = feedback_tasks.wrong_answer(rng, 3, MOVES, 30, guessed=guessed)
            assert (answer.critique == feedback_tasks.NO_WORKING) == guessed
            assert answer.text != "#### 9"


def test_wrong_answers_are_wrong_and_the_critique_names_the_first_wrong_line():
    """Against the truth of each step, which is computed from the question alone."""
    rng = random.Random(0)
    for problem in PROBLEMS:
        start, moves = word_problems.read_question(problem.question)
        for _ in range(5):
            answer = feedback_tasks.wrong_answer(rng, start, moves, 30)
            assert not is_correct(answer.text, problem.answer)
            steps = answer.text.splitlines()
            if len(steps) == 1:
                assert answer.critique == feedback_tasks.NO_WORKING
                continue
            line = true_step_labels(problem.question, steps).index(False) + 1
            assert answer.critique in (f"Line {line} is wrong.", f"Line {line} misreads.")
            misread = (
                moves[line - 1].operator == "*"
                and f" + {moves[line - 1].operand} =" in (steps[line - 1])
            )
            assert misread == (kind(answer.critique) == "misreads")


def test_each_kind_of_mistake_is_as_frequent():
    rng = random.Random(1)
    drawn = Counter(
        kind(feedback_tasks.wrong_answer(rng, 3, MOVES, 30).critique) for _ in range(3000)
    )
    assert set(drawn) == {"working", "wrong", "misreads"}
    # Standard deviation 26: five of them.
    assert all(abs(count - 1000) < 130 for count in drawn.values())


def test_a_mistake_without_consequence_is_none():
    """2 times 2 is 2 more than 2: nobody can see the misreading."""
    rng = random.Random(2)
    moves = [Move("*", 2), Move("+", 3)]
    drawn = {kind(feedback_tasks.wrong_answer(rng, 2, moves, 30).critique) for _ in range(200)}
    assert drawn == {"working", "wrong"}


@pytest.mark.parametrize("value", [0, 30])
def test_there_is_a_wrong_answer_at_the_ends_of_the_range(value):
    moves = [Move("-", 5), Move("+", value)]
    for seed in range(20):
        answer = feedback_tasks.wrong_answer(random.Random(seed), 5, moves, 30)
        assert not is_correct(answer.text, str(value))


SOURCE = word_problems.WordProblemsConfig(
    kind="word_problems",
    num_problems=800,
    max_value=30,
    guess_share=0.3,
    slip_share=0.08,
    misconception_share=0.5,
)
FEEDBACK_TASKS_PROBLEMS = list(word_problems.generate_problems(SOURCE, 0))
ANSWERS = {problem.id: problem.answer for problem in FEEDBACK_TASKS_PROBLEMS}


def make(problems=FEEDBACK_TASKS_PROBLEMS, seed=0, **shares):
    config = MixtureConfig(
        **({"judge": 0.0, "critique": 0.0, "revise": 0.0, "max_prompt_tokens": 192} | shares)
    )
    return list(feedback_tasks.make_exchanges(problems, config, max_value=30, seed=seed))


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
    assert make(problems=FEEDBACK_TASKS_PROBLEMS[5:], judge=0.5) == [
        row for row in make(judge=0.5) if row.id not in {p.id for p in FEEDBACK_TASKS_PROBLEMS[:5]}
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
    other = FEEDBACK_TASKS_PROBLEMS[0].__class__(
        id="x", question="Why?", answer="1", solution=None, split=None, line=1
    )
    with pytest.raises(ValueError, match=r"problem 'x': expected a question that word_problems"):
        make(problems=[other], judge=1.0)
