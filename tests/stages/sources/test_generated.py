"""Generated problems: word problems with people's demonstrations, feedback on them, and families
of reasoning-gym."""

import importlib
import inspect
import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from environments_installed import needs_environments
from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML

from stages.rewards.answer_checker import is_correct
from stages.rewards.feedback.principles import CORRECT
from stages.rewards.feedback.prompts import OPTIONS
from stages.rewards.step_solutions import true_step_labels
from stages.sources import catalogue, feedback_tasks, reasoning_gym, splitting, word_problems
from stages.sources.feedback_tasks import ALL_RIGHT, NO_WORKING, MixtureConfig
from stages.sources.reasoning_gym import MEASURED, Items
from stages.sources.word_problems import Move, WordProblemsConfig

# --- word problems

TABLES = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml"))
CHAIN = [Move("+", 4), Move("*", 2), Move("-", 5)]
TOLD = "Anna has 3 apples. She buys 4 more. Then Anna has 2 times as many. She sells 5. "


def test_a_question_worked_by_hand_is_read_and_another_one_is_not():
    assert word_problems.read_question(f"{TOLD}How many apples now?") == (3, CHAIN)
    assert word_problems.chain_values(3, CHAIN) == [3, 7, 14, 9]
    others = [text.replace("<told>", TOLD) for text in TABLES["unread"]]
    assert [question for question in others if word_problems.read_question(question)] == []


@pytest.mark.parametrize(("options", "working"), TABLES["workings"])
def test_a_working_carries_slips_on_within_the_range(options, working):
    assert word_problems.write_working(3, CHAIN, **({"max_value": 30} | options)) == "\n".join(
        working
    )


STEP = re.compile(r"(\d+) ([-+*]) (\d+) = (\d+)")
SOLVE = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
FAULTLESS = {"guess_share": 0.0, "slip_share": 0.0, "misconception_share": 0.0}


def generate(seed: int = 0, **changes: Any) -> list[Any]:
    settings = {"kind": "word_problems", "num_problems": 1500, "max_value": 120,
                "guess_share": 0.33, "slip_share": 0.2, "misconception_share": 0.5}  # fmt: skip
    config = WordProblemsConfig.model_validate(settings | changes)
    return list(word_problems.generate_problems(config, seed))


PROBLEMS = generate()


def read_told(question: str) -> tuple[int, list[tuple[str, int]]]:
    """Start and moves of a question, read without the module under test."""
    start, *operands = map(int, re.findall(r"\d+", question))
    told = [text for text in question.split(". ")[1:] if re.search(r"\d", text)]
    signs = ["*" if "times as many" in text else
             "-" if re.search("gives|loses|sells", text) else "+" for text in told]  # fmt: skip
    return start, list(zip(signs, operands, strict=True))


def worked(problem: Any) -> list[tuple[int, str, int, int]]:
    return [(int(a), op, int(b), int(c)) for a, op, b, c in STEP.findall(problem.solution)]


@pytest.mark.parametrize("misconception_share", [0.0, 1.0])
def test_a_demonstration_works_through_the_question_or_misreads_times_as_more(misconception_share):
    for problem in generate(**FAULTLESS | {"misconception_share": misconception_share}):
        value, moves = read_told(problem.question)
        assert word_problems.read_question(problem.question) == (value, [Move(*x) for x in moves])
        steps, truth = worked(problem), value
        assert 2 <= len(moves) <= word_problems.MAX_STEPS == 3
        assert all(int(number) <= 120 for number in re.findall(r"\d+", problem.solution))
        for (sign, operand), (before, shown, by, after) in zip(moves, steps, strict=True):
            truth = SOLVE[sign](truth, operand)
            assert 0 <= truth <= 120
            is_misread = misconception_share == 1.0 and sign == "*"
            assert (before, shown, by) == (value, "+" if is_misread else sign, operand)
            value = after
            assert misconception_share == 1.0 or value == truth
        assert str(truth) == problem.answer
        assert problem.solution.splitlines()[-1] == f"#### {value}"


def test_shares_of_faults_are_near_the_configured_ones():
    rest = [problem for problem in PROBLEMS if worked(problem)]
    assert 1 - len(rest) / 1500 == pytest.approx(0.33, abs=0.04)
    times = [p for p in rest if any(op == "*" for op, _ in read_told(p.question)[1])]
    # Misread problems may leave the range, and be cut back to it, without a slip.
    others = [problem for problem in rest if problem not in times]
    slips = [p for p in others if any(SOLVE[op](a, b) != c for a, op, b, c in worked(p))]
    assert len(slips) / len(others) == pytest.approx(0.2, abs=0.05)
    misread = [p for p in times if not any(op == "*" for _, op, _, _ in worked(p))]
    assert len(misread) / len(times) == pytest.approx(0.5, abs=0.06)
    guesses = generate(guess_share=1.0)
    assert all(re.fullmatch(r"#### \d+", problem.solution) for problem in guesses)
    right = sum(is_correct(problem.solution, problem.answer) for problem in guesses)
    assert right / 1500 == pytest.approx(1 / 11, abs=0.03)


# --- judging, criticising and revising


def kind(critique: str) -> str:
    return critique.rstrip(".").split()[-1]


def test_a_wrong_answer_is_wrong_and_its_critique_names_the_first_wrong_line():
    """Against the truth of each step, which is computed from the question alone."""
    rng = random.Random(0)
    for problem in generate(num_problems=300, max_value=30, **FAULTLESS):
        start, moves = word_problems.read_question(problem.question) or (0, [])
        for guessed in (None, None, None, True, False):
            answer = feedback_tasks.wrong_answer(rng, start, moves, 30, guessed=guessed)
            assert not is_correct(answer.text, problem.answer)
            *lines, _ = answer.text.splitlines()
            assert guessed is None or guessed == (not lines)
            if not lines:
                assert answer.critique == NO_WORKING
                continue
            line = true_step_labels(problem.question, answer.text.splitlines()).index(False) + 1
            assert answer.critique in (f"Line {line} is wrong.", f"Line {line} misreads.")
            move = moves[line - 1]
            is_misread = move.operator == "*" and f" + {move.operand} =" in lines[line - 1]
            assert is_misread == (kind(answer.critique) == "misreads")


def test_each_kind_of_mistake_is_as_frequent_and_has_a_consequence():
    rng = random.Random(1)

    def draw(start: int, moves: list[Move], count: int) -> list[Any]:
        return [feedback_tasks.wrong_answer(rng, start, moves, 30) for _ in range(count)]

    drawn = Counter(kind(answer.critique) for answer in draw(3, CHAIN, 3000))
    # Standard deviation 26: five of them.
    assert {*drawn} == {"working", "wrong", "misreads"}
    assert all(abs(count - 1000) < 130 for count in drawn.values())
    answers = draw(2, [Move("*", 2), Move("+", 3)], 200)  # 2 times 2 is 2 more than 2
    assert {kind(answer.critique) for answer in answers} == {"working", "wrong"}
    for value in (0, 30):
        ends = draw(5, [Move("-", 5), Move("+", value)], 20)
        assert not any(is_correct(answer.text, str(value)) for answer in ends)


SOURCES = generate(num_problems=800, max_value=30, slip_share=0.08)
ANSWERS = {problem.id: problem.answer for problem in SOURCES}


def exchange(problems: Any = SOURCES, seed: int = 0, **shares: float) -> list[Any]:
    numbers = {"judge": 0.0, "critique": 0.0, "revise": 0.0, "max_prompt_tokens": 192} | shares
    config = MixtureConfig.model_validate(numbers)
    return list(feedback_tasks.make_exchanges(problems, config, max_value=30, seed=seed))


def quoted(message: str, mark: str) -> str:
    lines = [line for line in message.splitlines() if line.startswith(mark)]
    return "\n".join(line.removeprefix(mark).strip() for line in lines)


def test_exchanges_have_their_shares_and_depend_on_seed_task_and_problem_alone():
    rows = exchange(judge=0.5, critique=0.25, revise=1.5)
    counts = Counter(row.task for row in rows)
    for task, count, slack in (("judge", 400, 60), ("critique", 200, 50), ("revise", 1200, 60)):
        assert counts[task] == pytest.approx(count, abs=slack)
    assert exchange() == []
    judged = [row for row in rows if row.task == "judge"]
    assert exchange(judge=0.5) == judged != exchange(judge=0.5, seed=1)
    first = {problem.id for problem in SOURCES[:5]}
    assert exchange(SOURCES[5:], judge=0.5) == [row for row in judged if row.id not in first]
    with pytest.raises(ValueError, match="'x'"):
        exchange([replace(SOURCES[0], id="x", question="Why?")], judge=1.0)


def test_the_better_answer_is_the_right_one_and_neither_place_nor_length_tells():
    rows = exchange(judge=1.0)
    lengths = []
    for row in rows:
        answers = [quoted(row.message, f"{option}:") for option in OPTIONS]
        right = [is_correct(answer, ANSWERS[row.id]) for answer in answers]
        assert right == [option == row.reply for option in OPTIONS]
        lengths.append([len(answer.splitlines()) for answer in answers])
    assert sum(row.reply == OPTIONS[0] for row in rows) == pytest.approx(400, abs=5 * 14.2)
    # One wrong answer of five is a guess, which is shorter.
    assert sum(first == second for first, second in lengths) / 800 == pytest.approx(0.8, abs=0.05)
    principles = {row.message.split(":")[0].removeprefix("Judge ") for row in rows}
    assert principles == {principle.name for principle in CORRECT}


def test_critiques_are_of_what_is_shown_and_revisions_are_right():
    rows = exchange(critique=1.0)
    for row in rows:
        shown = quoted(row.message, ">")
        assert (row.reply == ALL_RIGHT) == is_correct(shown, ANSWERS[row.id])
        assert (row.reply == NO_WORKING) == ("\n" not in shown)
    assert sum(row.reply == ALL_RIGHT for row in rows) / 800 == pytest.approx(0.3, abs=0.08)
    for row in exchange(revise=1.0):
        assert is_correct(row.reply, ANSWERS[row.id])
        critique = quoted(row.message, "!")
        assert (critique == ALL_RIGHT) == (quoted(row.message, ">") == row.reply)


# --- reasoning-gym

ADAPTER: Any = TypeAdapter(catalogue.SourceConfig)
GYM = {"kind": "reasoning_gym", "num_problems": 40,
       "families": {"chain_sum": {"min_terms": 2, "max_terms": 2, "max_digits": 2},
                    "gcd": {}}}  # fmt: skip


@pytest.mark.parametrize("families", TABLES["families_refused"])
def test_a_family_that_no_result_should_rest_on_is_refused(families):
    with pytest.raises(ValidationError):
        ADAPTER.validate_python(GYM | {"families": families})


def names_of(section: str) -> set[str]:
    return {name for names in MEASURED[section].values() for name in names}


def test_a_scored_family_needs_no_answer_but_a_score_of_any_text():
    families = {"graph_color": {}, "sudoku": {}}
    assert reasoning_gym.check_scored_families(families) == families
    for name in ("game_of_life_halting", *names_of("refused in environments")):
        with pytest.raises(ValueError, match=name):
            reasoning_gym.check_scored_families({name: {}})
    assert not {*MEASURED["checked"]} & (names_of("refused") | {*MEASURED["no answer"]})


def test_items_are_distinct_and_an_interrupted_one_is_made_again(monkeypatch):
    """Where a time limit ends a call, the items keep their numbers."""

    class Dataset:
        interruptions = 1

        def __getitem__(self, index):
            if index == 1 and self.interruptions:
                self.interruptions -= 1
                raise TimeoutError
            return {"question": f"{min(index // 2, 9)} {'?' * (1 + index % 2)}".upper()[:3]}

    monkeypatch.setattr(reasoning_gym, "open_family", lambda *_: Dataset())
    items = Items("twice", {}, 0)
    with pytest.raises(TimeoutError):
        items[1]
    assert [items[index]["question"] for index in range(10)] == [f"{n} ?" for n in range(10)]
    with pytest.raises(ValueError, match="10 different"):
        items[10]


@needs_environments
def test_no_answer_of_a_scored_family_is_evaluated_as_python():
    package = importlib.import_module("reasoning_gym.factory")
    evaluates = {
        name
        for name, (family, _) in package.DATASETS.items()
        if re.search(r"\b(eval|parse_expr)\(answer", inspect.getsource(family.score_answer))
    }
    assert names_of("refused in environments") == evaluates | {"prime_factorization"}


@needs_environments
def test_problems_are_distinct_of_each_family_in_turn_and_of_the_seed():
    config = ADAPTER.validate_python(GYM)
    first, again, other = (catalogue.read_source(config, seed).problems for seed in (0, 0, 1))
    ids = [problem.id for problem in first[:3]]
    assert ids == ["chain_sum-00000", "gcd-00000", "chain_sum-00001"]
    assert len({splitting.split_key(problem) for problem in first}) == len(first) == 40
    assert first == again
    assert len({problem.question for problem in first} & {p.question for p in other}) < 20


@needs_environments
def test_a_wrong_parameter_an_unknown_family_and_the_end_of_one_are_named():
    for name, options in (("chain_sum", {"terms": 2}), ("chain_sums", {})):
        with pytest.raises(ValueError, match=name):
            Items(name, options, 0)
    # Sums of two digits are soon all there.
    digits = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    with pytest.raises(ValueError, match="chain_sum"):
        Items("chain_sum", digits, 0)[1000]


@needs_environments
def test_the_answer_checker_judges_as_the_package_does():
    from studies.reasoning_gym import make_items, measure_agreement

    for name in ("chain_sum", "gcd", "leg_counting", "number_sequence"):
        assert name in MEASURED["checked"]
        assert measure_agreement(reasoning_gym.open_family(name, {}, 0), make_items(name)[:20]) == 1
