from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import step_solutions

QUESTION = "Anna has 3 apples. She buys 4 more. She finds 2 more. How many apples now?"
PROMPT = Prompt(
    id="a", task="solve", question=QUESTION, prompt=QUESTION, prompt_ids=[7], answer="9"
)
RIGHT, REPAIRED, WRONG, GUESS = (
    "3 + 4 = 7\n7 + 2 = 9\n#### 9",
    "3 + 4 = 8\n8 + 2 = 9\n#### 9",
    "3 + 4 = 7\n7 + 2 = 8\n#### 8",
    "#### 9",
)


def decode(ids):
    return "".join(map(chr, ids)).rstrip("$")


def pool(*texts, cut=()):
    return [
        Completion(
            id="a",
            index=index,
            completion=text,
            completion_ids=[ord(character) for character in f"{text}$"],
            logprob_sum=0.0,
            finish_reason="length" if index in cut else "stop",
            seed=0,
        )
        for index, text in enumerate(texts)
    ]


def choose(rows, number=9, prompt=PROMPT):
    return step_solutions.choose([(prompt, rows)], decode, "\n", number)


def test_steps_verdict_and_truth():
    right, repaired, wrong, guess = choose(pool(RIGHT, REPAIRED, WRONG, GUESS))
    assert right.steps == ["3 + 4 = 7", "7 + 2 = 9", "#### 9"]
    assert (right.correct, right.true_labels) == (True, [True, True, True])
    assert (repaired.correct, repaired.true_labels) == (True, [False, False, False])
    assert (wrong.correct, wrong.true_labels) == (False, [True, False, False])
    assert (guess.correct, guess.true_labels, guess.prefixes()) == (True, [True], [])


def test_a_prefix_ends_after_each_step_but_the_last():
    (solution,) = choose(pool(RIGHT))
    assert [decode(ids) for ids in solution.prefixes()] == ["3 + 4 = 7\n", "3 + 4 = 7\n7 + 2 = 9\n"]


def test_prefixes_of_several_come_with_their_problem():
    found = list(step_solutions.prefixes(choose(pool(RIGHT, GUESS, WRONG))))
    assert [(one.id, decode(ids).splitlines()[-1]) for one, ids in found] == [
        ("a", "3 + 4 = 7"), ("a", "7 + 2 = 9"), ("a", "3 + 4 = 7"), ("a", "7 + 2 = 8")
    ]  # fmt: skip


def test_the_first_different_ones_that_ended_in_the_order_of_the_draws():
    rows = pool(RIGHT, WRONG, RIGHT, GUESS, WRONG, RIGHT, REPAIRED, cut={1, 3})
    assert [one.index for one in choose(rows)] == [0, 4, 6]
    assert [one.index for one in choose(rows, 2)] == [0, 4]


def test_without_a_generated_question_no_truth_is_known():
    prompt = Prompt(id="a", task="solve", question="3 + 6?", prompt="", prompt_ids=[1], answer="9")
    (solution,) = choose(pool(WRONG), prompt=prompt)
    assert (solution.true_labels, solution.correct) == (None, False)
