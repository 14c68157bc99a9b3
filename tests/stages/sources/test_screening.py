"""Rows of a source that are each well formed: which are used, in which split, and how counted."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from ruamel.yaml import YAML

from stages.records.preferences import Preference, RawPreference
from stages.records.problems import BadRow, Demonstration, Problem, Prompt, Turn
from stages.records.steps import RawSteps, StepLabels
from stages.records.transcripts import earlier_turns, render_question, render_transcript
from stages.sources import (
    catalogue,
    conversations,
    data_summary,
    near_copies,
    preference_files,
    problem_files,
    splitting,
    step_files,
)
from stages.sources.feedback_tasks import MixtureConfig
from stages.sources.quarantine import FileLimits
from stages.sources.splitting import Shares

ADAPTER: Any = TypeAdapter(catalogue.SourceConfig)
GOOD = Problem(id="a", question="2+2?", answer="4", solution=None, split="train", line=1,
               file="a.jsonl")  # fmt: skip
USER, SYSTEM = Turn("user", "2+2?"), Turn("system", "Be brief.")
TALK = (Turn("user", "Hi"), Turn("assistant", "Ho"), USER)


def change(number: int, **changes: Any) -> Problem:
    return replace(GOOD, **({"id": f"{number}", "line": number} | changes))


def read_turns(text: str) -> tuple[Turn, ...]:
    turns = [part.partition(":")[::2] for part in text.split("|")]
    return tuple(Turn("assistant", content, is_imitated=False) if role == "context" else
                 Turn(role, content) for role, content in turns)  # fmt: skip


TABLES = YAML(typ="safe").load(Path(__file__).with_name("screening.yaml"))


def read_change(number: int, *, turns=None, thought=None, answer="4", **changes: Any) -> Problem:
    changes["reply"] = thought and Turn("assistant", "4", reasoning=thought)
    changes["answer"] = "9" * 5000 if answer == "<long>" else answer
    return change(number, turns=turns and read_turns(turns), **changes)


@pytest.mark.parametrize("case", TABLES["rows"], ids=lambda case: case["it"])
def test_a_row_is_used_unless(case):
    rows = [read_change(number, **changes) for number, changes in enumerate(case["rows"])]
    screened = catalogue.screen_rows(rows)
    kinds = {row.line: row.reason.partition(":")[0] for row in screened.bad}
    assert kinds == case.get("out", {})
    assert len(screened.problems) == len(rows) - len(kinds)
    assert screened.has_test == any(row.split == "test" for row in rows)
    for name in ("id", "answer"):
        shown = [getattr(row, name) for row in screened.problems]
        assert shown == case.get(f"{name}s", shown)


def bad(line: int, reason: str) -> BadRow:
    return BadRow(file="a.jsonl", line=line, reason=f"{reason}: x", content="{")


def test_bad_rows_are_counted_over_all_rows_and_harmless_ones_warned_of():
    rows = [GOOD, *(replace(GOOD, line=n) for n in (2, 3)), bad(9, "not JSON")]
    screened = catalogue.screen_rows(rows)
    screened.check_share(0.25)
    with pytest.raises(ValueError, match=r"(?s)1 of 4 rows .*1 not JSON.*24\.0%.*a.jsonl, line 9"):
        screened.check_share(0.24)
    assert [*screened.warn_of_left_out(0.5)] == []
    (warning,) = screened.warn_of_left_out(0.4)
    assert warning.startswith("2 of 4")
    for unusable, words in (([], "rows"), ([bad(1, "repeated")], "of 1 all.*1 repeated")):
        with pytest.raises(ValueError, match=words):
            catalogue.screen_rows(unusable).check_share(0.5)


def test_labels_of_a_row_count_once_and_too_much_of_a_file_is_refused():
    limits = FileLimits(licence="", max_tokens=1, max_bad_share=0.5, max_long_share=0.25)
    tie, wrong, long = bad(3, "tie"), bad(2, "odd"), bad(1, "long")
    assert limits.left_out("p", [tie, wrong, wrong], [long], 2, 4) == [long, wrong, wrong, tie]
    for rows, over_long, limit in (
        ([wrong, bad(4, "odd")], [], "max_bad_share"),
        ([], [long], "max_long_share"),
        ([tie] * 3, [], "3 tie"),
    ):
        with pytest.raises(ValueError, match=limit):
            limits.left_out("p", rows, over_long, 3)


# --- sources


def write(folder: Path, name: str, *rows: object) -> dict[str, Any]:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {"path": str(folder / name)}


def read(source: Any) -> catalogue.ScreenedSource:
    return catalogue.read_source(ADAPTER.validate_python(source), 0)


def test_a_source_has_the_names_and_licences_of_its_files():
    files = [{"path": "a.jsonl", "licence": "CC0-1.0"}, {"path": ["b.csv", "c.csv"]}]
    source, alone = ADAPTER.validate_python(files), ADAPTER.validate_python(files[1])
    assert catalogue.name_of(source) == "a.jsonl, b.csv, c.csv"
    assert (catalogue.licence_of(source), catalogue.licence_of(alone)) == ("CC0-1.0", None)


def test_several_sources_have_ids_of_their_own_and_know_of_their_test(tmp_path):
    chat = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}
    rows = [{"id": n, "question": f"{n}+1?", "answer": "4"} for n in range(3)]
    screened = read([write(tmp_path, "a.jsonl", *rows), write(tmp_path, "b.jsonl", chat)])
    assert [row.id for row in screened.problems] == ["1-0", "1-1", "1-2", "2-b-000001"]
    assert [report.form for report in screened.reports] == ["problems", "conversations"]
    write(tmp_path, "b.jsonl", *(row | {"question": f"{row['id']}+2?"} for row in rows))
    folder = {"path": str(tmp_path)}
    assert [len(read(folder | {"ignore": names}).problems) for names in ([], ["id"])] == [3, 6]
    (tmp_path / "a.jsonl").rename(tmp_path / "train.jsonl")
    write(tmp_path, "test.jsonl", {"question": " ", "answer": "4"})
    assert read(folder | {"ignore": ["id"]}).has_test


def test_solutions_that_contradict_the_gold_answers_are_refused(tmp_path):
    """At most a tenth of them may state another answer."""

    def agreement(num_wrong: int) -> float | None:
        rows = [{"problem": f"{n}?", "level": str(n + (n < num_wrong)),
                 "solution": rf"So \boxed{{{n}}}"} for n in range(20)]  # fmt: skip
        columns = {"question": "problem", "answer": "level", "solution": "solution"}
        return read(write(tmp_path, "m.jsonl", *rows) | {"columns": columns}).agreement

    assert agreement(2) == pytest.approx(0.9)
    with pytest.raises(ValueError, match=r"(?s)3 of 20 .*line 1: .*'1'.*'0'"):
        agreement(3)
    assert read(write(tmp_path, "m.jsonl", {"question": "?", "answer": "4"})).agreement is None


def test_the_first_rows_or_a_share_of_the_questions_are_a_first_try(tmp_path):
    def questions(rows: list[Any], **options: Any) -> set[str]:
        return {row.question for row in read(write(tmp_path, "a.jsonl", *rows) | options).problems}

    rows = [{"question": f"{n}+1?", "answer": n + 1} for n in range(400)]
    assert questions(rows, limit=3) == {"0+1?", "1+1?", "2+1?"}
    half = questions(rows, share=0.5)
    assert 160 < len(half) < 240
    assert questions(rows[::-1], share=0.5) == half
    assert questions(rows, share=0.25) < half


def test_a_report_names_the_columns_of_each_split(tmp_path):
    says = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "So."}]
    test = {"problem": "3 + 5?", "final_answer": "8", "solution": "8", "level": 5}
    write(tmp_path, "train.jsonl", {"messages": says})
    write(tmp_path, "test.jsonl", test)
    (report,) = read({"path": str(tmp_path)}).reports
    assert report.columns == {
        "messages": "messages", "question (test)": "problem", "answer (test)": "final_answer",
        "solution (test)": "solution",
    }  # fmt: skip
    text = problem_files.describe_report(report)
    assert all(name in text for name in ("conversations, of test problems", "level", "problem"))


def test_other_tasks_are_made_of_generated_problems_alone():
    mixture = MixtureConfig(judge=0.5, critique=0.0, revise=0.5, max_prompt_tokens=192)
    files = {"source": {"path": "a.jsonl"}, "prompt_template": "{question}", "max_prompt_tokens": 9,
             "max_completion_tokens": 9, "max_bad_share": 0.1, "mixture": mixture,
             "shares": {"preference": 0.1, "dev": 0.1, "test": 0.1}}  # fmt: skip
    with pytest.raises(ValueError, match=r"mixture.*judge=0\.5"):
        catalogue.PreparationConfig.model_validate(files)


# --- splits


SHARES = Shares(preference=0.2, dev=0.1, test=0.1)


def sums(count: int, **changes: Any) -> list[Problem]:
    return [replace(GOOD, id=f"{n}", question=f"{n}+1?", **changes) for n in range(count)]


def test_a_problem_is_in_a_split_by_its_question_alone():
    everything = sums(4000)
    splits = splitting.split_problems(everything, SHARES)
    place = {row.id: name for name, rows in splits.items() for row in rows}
    assert len(place) == sum(map(len, splits.values())) == 4000
    for name, share in (("train", 0.6), ("preference", 0.2), ("dev", 0.1), ("test", 0.1)):
        # Four standard deviations of a binomial count are 0.031 at most.
        assert len(splits[name]) / 4000 == pytest.approx(share, abs=0.031)
    others = [replace(row, question=f" {row.question.upper()}\n") for row in everything[::-3]]
    others += [replace(row, question="another text", turns=(
        SYSTEM, Turn("user", row.question), Turn("assistant", "Hm"), USER))
        for row in everything[::-3]]  # fmt: skip
    for name, rows in splitting.split_problems(others, SHARES).items():
        assert {place[row.id] for row in rows} == {name}
    fixed = {split: sums(7, split=split) for split in ("dev", "test")}
    splits = splitting.split_problems([*everything, *fixed["dev"], *fixed["test"]], SHARES)
    assert splits == splits | fixed
    assert len(splits["train"]) / 4000 == pytest.approx(0.8, abs=0.03)


def test_the_place_of_a_row_and_a_number_beyond_floats_are_no_scores(tmp_path):
    """Columns are found by whole rows, however many broken ones stand before them."""
    rows = [{"prompt": f"{n}?", "response": "So.", "meta": {"place": n, "huge": 10**400}}
            for n in range(300)]  # fmt: skip
    screened = read(write(tmp_path, "m.jsonl", *[[1]] * 200, *rows))
    assert (len(screened.problems), len(screened.bad)) == (300, 200)


def test_conversations_that_open_alike_are_split_by_their_whole_text():
    everything = [
        replace(row, question=f"Play game {number % 3}. {row.question}", turns=(
            Turn("user", f"Play game {number % 3}."), Turn("assistant", "Hm"),
            Turn("user", row.question)))
        for number, row in enumerate(sums(1500))
    ]  # fmt: skip
    splits = splitting.split_problems(everything, SHARES)
    for name, share in {"preference": 0.2, "dev": 0.1, "test": 0.1}.items():
        assert len(splits[name]) / 1500 == pytest.approx(share, abs=0.03), name
    assert splitting.count_split_openings(splits) == 3
    assert splitting.count_split_openings({"train": splits["train"], "test": []}) == 0


@pytest.mark.parametrize(
    ("count", "shares", "has_test", "words"),
    [(3, SHARES, False, "3 problems, of 3"), (4000, SHARES, True, "test split"),
     (100, Shares(preference=0.5, dev=0.3, test=0.3), False, r"1\.1")],
)  # fmt: skip
def test_a_split_without_problems_is_refused(count, shares, has_test, words):
    with pytest.raises(ValueError, match=words):
        splitting.split_problems(sums(count), shares, has_test=has_test)


def test_a_dev_or_test_split_of_which_only_some_problems_have_gold_answers_is_refused():
    rows = sums(300)
    without = [replace(row, answer=None) for row in rows]
    for name in ("dev", "test"):
        fixed = [replace(row, split=name, id=f"{name}-{row.id}") for row in rows[:9]]
        mixed = [*without[:1], *fixed, replace(fixed[0], id="x", question="?", answer=None)]
        with pytest.raises(ValueError, match=rf"split {name} or of none, found 9 with one and 1 "):
            splitting.split_problems([*rows[9:], *mixed], SHARES)
    assert len(splitting.split_problems(without, SHARES)["test"]) > 0
    # Conversations to imitate beside problems that have splits of their own.
    splits = {name: [replace(row, split=name) for row in rows[:9]] for name in ("dev", "test")}
    splitting.split_problems([*rows[9:99], *without[99:], *splits["dev"], *splits["test"]], SHARES)


@pytest.mark.parametrize(("turns", "expected"), TABLES["openings"].items())
def test_a_conversation_opens_with_what_stands_before_the_first_answer(turns, expected):
    assert splitting.opening(read_turns(turns)) == expected


@pytest.mark.parametrize("system", [(), (SYSTEM,)])
def test_a_question_shows_its_turns_and_is_read_back(system):
    for talk in (TALK[:1], TALK):
        turns = [*system, *talk]
        assert conversations.parse_question(render_question(turns)) == turns
        if not system:
            transcript = f"{render_transcript(turns)} Yes"
            assert conversations.parse_transcript(transcript) == [*turns, Turn("assistant", "Yes")]


def test_each_earlier_answer_is_a_demonstration_of_its_own():
    turns = (Turn("assistant", "Good day!"), *TALK)
    (earlier,) = earlier_turns([replace(GOOD, turns=turns, solution="4")])
    assert (earlier.turns, earlier.solution, earlier.id) == (turns[:2], "Ho", "a-turn-2")
    assert [*earlier_turns([replace(GOOD, turns=TALK[:1])])] == []


def raw_pair(question: str, *more: Turn) -> tuple[RawPreference, str]:
    raw = RawPreference(
        turns=(Turn("user", question), *more), plain_prompt=question, plain_lead="", chosen="a",
        rejected="b", probability=1.0, line=1, file="f",
    )  # fmt: skip
    return raw, question


def test_pairs_that_open_alike_are_on_one_side_and_not_of_the_test():
    more = Turn("assistant", "Hm"), Turn("user", "And?")
    pairs = [raw_pair(f"say {i}", *turns) for i in range(2000) for turns in ((), more)]
    sides: Any = preference_files.split_pairs(pairs, 0.1)
    assert sum(map(len, sides.values())) == 4000
    # Four standard deviations of 2 x 200.
    assert len(sides["heldout"]) == pytest.approx(400, abs=110)
    assert not {*sides["heldout"]} & {*sides["train"]}
    some: Any = preference_files.split_pairs(pairs[::-3], 0.1)
    assert {*some["heldout"]} <= {*sides["heldout"]}
    with pytest.raises(ValueError, match="1 rows"):
        preference_files.split_pairs(pairs[:1], 0.5)


def test_solutions_of_a_problem_are_on_one_side():
    labels = StepLabels(id="", index=0, prompt="", prompt_ids=[], steps=["a"], step_ids=[[1]],
                        labels=[1.0], num_completions=[0], true_labels=None, correct=None,
                        source="")  # fmt: skip
    rows = [replace(labels, prompt=f"{text}{i}") for i in range(200) for text in ("say ", "SAY  ")]
    held = [row.prompt.split() for row in step_files.split_solutions(rows, 0.5)["heldout"]]
    small, capital = ({number for word, number in held if word == case} for case in ("say", "SAY"))
    assert small == capital


@pytest.mark.parametrize("case", TABLES["cuts"])
def test_a_step_is_cut_at_the_separator_and_labelled_at_its_last_part(case):
    whole = RawSteps(line=1, question="", source="", **TABLES["whole"] | case.get("but", {}))
    result = step_files.cut_steps(whole, case["separator"])
    assert result == replace(whole, **case["gives"])


# --- near copies, repetitions, counts


def write_words(text: str) -> str:
    """The text with words in place of ranges: `0-2` is `w0 w1`."""
    return re.sub(
        r"(\d+)-(\d+)",
        lambda ends: " ".join(f"w{number}" for number in range(int(ends[1]), int(ends[2]))),
        text,
    )


@pytest.mark.parametrize("case", TABLES["near_copies"], ids=lambda case: case["it"])
def test_a_near_copy_holds_more_than_half_of_a_questions_8_grams(case):
    texts, questions = ([*map(write_words, case[name])] for name in ("texts", "questions"))
    assert [*near_copies.find_near_copies(texts, questions)] == case["copies"]


def test_near_copies_of_the_test_are_left_out_of_the_other_splits():
    test = change(1, id="t", question=write_words("0-17"), split="test")
    copy = change(2, id="c", question="Copy this.", solution=write_words("0-17"))
    splits = {"train": [GOOD, copy], "preference": [GOOD], "dev": [GOOD], "test": [test]}
    screened = catalogue.ScreenedSource(num_rows=5)
    assert catalogue.exclude_near_copies(splits, screened) == splits | {"train": [GOOD]}
    assert [row.reason for row in screened.bad] == ["near copy: of test question 't'"]
    screened.check_share(0.0)
    with pytest.raises(ValueError, match="train"):
        catalogue.exclude_near_copies(splits | {"train": [copy]}, screened)
    talk = (Turn("user", write_words("0-17")), Turn("assistant", "?"), USER)
    train = [GOOD, replace(copy, turns=talk, solution=None)]
    assert catalogue.exclude_near_copies(splits | {"train": train}, screened)["train"] == [GOOD]


def test_a_question_counts_once_in_dev_and_test_and_keeps_its_solutions_in_training():
    questions = ("What is 2?", "what is  2?", "2+2?")
    rows = [change(n, question=question) for n, question in enumerate(questions)]
    splits = {"train": rows, "preference": rows, "dev": rows, "test": rows}
    screened, once = catalogue.ScreenedSource(num_rows=3), [rows[0], rows[2]]
    unique = catalogue.exclude_repeated_questions(splits, screened)
    assert unique == splits | {"dev": once, "test": once}
    kinds = [(row.line, row.reason.partition(":")[0]) for row in screened.bad]
    assert kinds == [(1, "repeated question")] * 2
    screened.check_share(0.0)
    tools = [replace(rows[0], tools=name) for name in ("a", "b")]
    assert catalogue.exclude_repeated_questions(splits | {"test": tools}, screened)["test"] == tools


def test_pairs_and_labels_are_counted():
    names: Any = {"id": "1", "prompt_ids": [1, 2]}
    pairs = [Preference(**names, prompt="", chosen="", chosen_ids=[1] * long, rejected="",
                        rejected_ids=[1] * 2, probability=1.0, source="human")
             for long in (1, 2, 3, 4)]  # fmt: skip
    assert preference_files.describe_pairs(pairs) == {
        "pairs": 4, "prompts": 1, "mean_probability": 1.0, "mean_prompt_tokens": 2.0,
        "mean_chosen_tokens": 2.5, "mean_rejected_tokens": 2.0, "longer_chosen_share": 0.625,
    }  # fmt: skip


def test_prepared_rows_are_counted_by_split_task_and_question():
    case, summary = TABLES["prepared"], data_summary.DataSummary()
    names: Any = {"id": "", "prompt": ""}
    for split, question, ids in case["prompts"]:
        row = Prompt(**names, task="", question=question, prompt_ids=ids, answer=None)
        summary.add_prompt(split, row)
    for row in case["demonstrations"]:
        summary.add_demonstration(Demonstration(**names, **row))
    card = summary.describe()
    assert card == card | case["card"]
    overlaps = {name: number for name, number in card["overlaps"].items() if number}
    assert overlaps == {"train-test": 1}
    assert sorted(summary.all_completion_tokens()) == [1, 1, 3]
    assert (summary.completion_lines, summary.longest_prompt, summary.largest_id) == (6, 5, 9)
    ranks = {"min": 1, "median": 50, "p95": 95, "max": 100}
    assert data_summary.length_quantiles(range(1, 101)) == ranks
