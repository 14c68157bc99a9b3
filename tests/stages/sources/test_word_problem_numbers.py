import re
from collections import Counter

from stages.sources import word_problem_numbers, word_problem_text, word_problems

CONFIG = {
    "kind": "word_problems",
    "num_problems": 400,
    "max_value": 30,
    "guess_share": 0.0,
    "slip_share": 0.0,
    "misconception_share": 0.0,
}
PROBLEMS = list(word_problems.problems(word_problems.Config(**CONFIG), 0))
QUESTIONS = [problem.question for problem in PROBLEMS]
REDRAWN = word_problem_numbers.redraw(QUESTIONS, seed=1)


def test_the_words_stay_and_the_numbers_change():
    for question, other in zip(QUESTIONS, REDRAWN, strict=True):
        assert other is not None
        assert re.sub(r"\d+", "n", other[0]) == re.sub(r"\d+", "n", question)
        assert other[0] != question


def test_the_answer_is_what_the_new_numbers_make():
    for question, answer in filter(None, REDRAWN):
        numbers = [int(n) for n in re.findall(r"\d+", question)]
        value, rest = numbers[0], iter(numbers[1:])
        for sentence in question.split(". ")[1:-1]:
            n = next(rest)
            if "times" in sentence:
                value *= n
            elif any(verb in sentence for verb in ("buys", "finds", "gets")):
                value += n
            else:
                value -= n
            assert 0 <= value <= 30
        assert answer == str(value)


def test_new_numbers_are_as_hard_as_the_old_ones():
    def means(questions):
        chains = [word_problem_text.read(question) for question in questions]
        values = [word_problem_text.values(*chain) for chain in chains]
        return [sum(v[0] for v in values) / len(values), sum(v[-1] for v in values) / len(values)]

    # standard errors of 400 problems are about 0.27 and 0.45
    old, new = means(QUESTIONS), means([one[0] for one in REDRAWN if one])
    assert abs(old[0] - new[0]) < 1.2
    assert abs(old[1] - new[1]) < 2.0


def test_other_questions_have_none_and_shift_nothing():
    mixed = word_problem_numbers.redraw(["Why?", *QUESTIONS[:5]], seed=1)
    assert mixed[0] is None
    assert Counter(one is None for one in mixed) == {False: 5, True: 1}
    assert word_problem_numbers.redraw([], seed=1) == []
    assert word_problem_numbers.redraw(["Why?"], seed=1) == [None]
