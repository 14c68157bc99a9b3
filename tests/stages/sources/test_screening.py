"""Rows of a source that are each well formed: which are used, in which split, and how counted."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML

from stages.records.preferences import Preference, RawPreference, UnpairedExample
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
from stages.sources.problem_files import FileSource, SourceReport
from stages.sources.quarantine import FileLimits
from stages.sources.splitting import Shares

ADAPTER: Any = TypeAdapter(catalogue.SourceConfig)
WORDS = {"kind": "word_problems", "num_problems": 20, "max_value": 199, "guess_share": 0.3,
         "slip_share": 0.2, "misconception_share": 0.2}  # fmt: skip
GOOD = Problem(id="a", question="2+2?", answer="4", solution=None, split="train", line=1,
               file="a.jsonl")  # fmt: skip
USER, SYSTEM = Turn("user", "2+2?"), Turn("system", "Be brief.")
TALK = (Turn("user", "Hi"), Turn("assistant", "Ho"), USER)


def sort(*rows: Any) -> tuple[list[str], dict[int, str]]:
    """Ids of the problems that are used; line -> kind of the reason of the others."""
    screened = catalogue.screen_rows(rows)
    kinds = {row.line: row.reason.partition(":")[0] for row in screened.bad}
    return [problem.id for problem in screened.problems], kinds


def change(number: int, **changes: Any) -> Problem:
    return replace(GOOD, **({"id": f"{number}", "line": number} | changes))


def read_turns(text: str) -> tuple[Turn, ...]:
    turns = [part.partition(":")[::2] for part in text.split("|")]
    return tuple(Turn("assistant", content, is_imitated=False) if role == "context" else
                 Turn(role, content) for role, content in turns)  # fmt: skip


SCREENED = YAML(typ="safe").load(Path(__file__).with_name("screening.yaml"))


def read_change(number: int, *, turns=None, thought=None, answer="4", **changes: Any) -> Problem:
    changes["reply"] = thought and Turn("assistant", "4", reasoning=thought)
    changes["answer"] = "9" * 5000 if answer == "<long>" else answer
    return change(number, turns=turns and read_turns(turns), **changes)


@pytest.mark.parametrize("case", SCREENED, ids=lambda case: case["it"])
def test_a_row_is_used_unless(case):
    rows = [read_change(number, **changes) for number, changes in enumerate(case["rows"])]
    ids, kinds = sort(*rows)
    assert kinds == case.get("out", {})
    assert len(ids) == len(rows) - len(kinds)
    golds = [row.answer for row in catalogue.screen_rows(rows).problems]
    assert golds == case.get("golds", golds)


def test_ids_that_begin_anew_in_the_test_split_lose_no_test_question():
    rows = [change(number, question=f"{number}+1?") for number in range(3)]
    tests = [replace(row, question=f"{row.question}!", split="test") for row in rows[:2]]
    other = change(9, id="test-1", question="?")
    assert sort(*rows, other, *tests) == (["0", "1", "2", "test-1", "test-0", "test-test-1"], {})
    assert sort(*tests, *rows)[0] == ["0", "1", "train-0", "train-1", "2"]


def test_bad_rows_are_counted_over_all_rows_and_harmless_ones_warned_of():
    wrong = BadRow(file="a.jsonl", line=9, reason="not JSON: x", content="{")
    screened = catalogue.screen_rows([GOOD, *(replace(GOOD, line=n) for n in (2, 3)), wrong])
    screened.check_share(0.25)
    with pytest.raises(ValueError, match=r"1 of 4 rows .*1 not JSON.*24\.0%") as error:
        screened.check_share(0.24)
    assert "a.jsonl, line 9" in str(error.value)
    assert [*screened.warn_of_left_out(0.5)] == []
    (warning,) = screened.warn_of_left_out(0.4)
    assert warning.startswith("2 of 4")
    with pytest.raises(ValueError, match="rows"):
        catalogue.screen_rows([]).check_share(0.5)
    harmless = replace(wrong, reason="repeated: x")
    with pytest.raises(ValueError, match=r"of 1 all.*1 repeated"):
        catalogue.screen_rows([harmless]).check_share(0.0)


def test_labels_of_a_row_count_once_and_too_much_of_a_file_is_refused():
    limits = FileLimits(licence="", max_tokens=1, max_bad_share=0.5, max_long_share=0.25)
    tie, wrong, long = (BadRow(file="f", line=line, reason=reason, content="")
                       for line, reason in ((3, "tie: x"), (2, "odd: x"), (1, "long"))
    )  # fmt: skip
    assert limits.left_out("p", [tie, wrong, wrong], [long], 2, 4) == [long, wrong, wrong, tie]
    for bad, over_long, limit in (([wrong, replace(wrong, line=4)], [], "max_bad_share"),
                                  ([], [long], "max_long_share"),
                                  ([tie] * 3, [], "3 tie")):  # fmt: skip
        with pytest.raises(ValueError, match=limit):
            limits.left_out("p", bad, over_long, 3)


# --- sources


def write(folder: Path, name: str, *rows: object) -> dict[str, Any]:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {"path": str(folder / name)}


def test_the_kind_of_a_source_is_read_off_its_form():
    config = ADAPTER.validate_python(WORDS)
    first = catalogue.read_source(config, 0).problems
    assert (len(first), catalogue.read_source(config, 0).problems) == (20, first)
    assert catalogue.read_source(config, 1).problems != first
    source = ADAPTER.validate_python([{"path": "a.jsonl", "licence": "CC0-1.0"},
                                      {"path": ["b.csv", "c.csv"], "licence": "MIT"}])  # fmt: skip
    assert catalogue.name_of(source) == "a.jsonl, b.csv, c.csv"
    assert catalogue.licence_of(source) == "CC0-1.0, MIT"
    assert catalogue.licence_of(ADAPTER.validate_python({"path": "a.jsonl"})) is None
    assert str(catalogue.licence_of(config)).startswith("Apache-2.0")
    for wrong in (WORDS | {"kind": "math"}, []):
        with pytest.raises(ValidationError):
            ADAPTER.validate_python(wrong)


def test_several_sources_have_ids_of_their_own_and_know_of_their_test(tmp_path):
    chat = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}
    rows = [{"id": n, "question": f"{n}+1?", "answer": "4"} for n in range(3)]
    sources = [write(tmp_path, "a.jsonl", *rows), write(tmp_path, "b.jsonl", chat)]
    screened = catalogue.read_source(ADAPTER.validate_python(sources), 0)
    assert [row.id for row in screened.problems] == ["1-0", "1-1", "1-2", "2-b-000001"]
    assert [report.form for report in screened.reports] == ["problems", "conversations"]
    write(tmp_path, "b.jsonl", *(row | {"question": f"{row['id']}+2?"} for row in rows))
    folder = {"path": str(tmp_path)}
    assert len(catalogue.read_source(ADAPTER.validate_python(folder), 0).problems) == 3
    ignoring = ADAPTER.validate_python(folder | {"ignore": ["id"]})
    assert len(catalogue.read_source(ignoring, 0).problems) == 6
    (tmp_path / "a.jsonl").rename(tmp_path / "train.jsonl")
    write(tmp_path, "test.jsonl", {"question": " ", "answer": "4"})
    assert catalogue.read_source(ignoring, 0).has_test
    assert not catalogue.screen_rows([GOOD]).has_test


def test_solutions_that_contradict_the_gold_answers_are_refused(tmp_path):
    """At most a tenth of them may state another answer."""
    columns = {"question": "problem", "answer": "level", "solution": "solution"}
    for wrong, is_refused in ((2, False), (3, True)):
        rows = [{"problem": f"{n}?", "level": str(n + (n < wrong)),
                 "solution": rf"So \boxed{{{n}}}"} for n in range(20)]  # fmt: skip
        source = ADAPTER.validate_python(write(tmp_path, "m.jsonl", *rows) | {"columns": columns})
        if not is_refused:
            assert catalogue.read_source(source, 0).agreement == pytest.approx(0.9)
            continue
        with pytest.raises(ValueError, match=r"(?s)3 of 20 .*line 1: .*'1'.*'0'"):
            catalogue.read_source(source, 0)
    alone = ADAPTER.validate_python(write(tmp_path, "m.jsonl", {"question": "?", "answer": "4"}))
    assert catalogue.read_source(alone, 0).agreement is None


def test_the_first_rows_or_a_share_of_the_questions_are_a_first_try(tmp_path):
    def read(rows: list[Any], **options: Any) -> set[str]:
        source = FileSource.model_validate(write(tmp_path, "a.jsonl", *rows) | options)
        return {row.question for row in problem_files.read_problems(source, SourceReport(path=""))
                if isinstance(row, Problem)}  # fmt: skip

    rows = [{"question": f"{n}+1?", "answer": n + 1} for n in range(400)]
    assert read(rows, limit=3) == {"0+1?", "1+1?", "2+1?"}
    half = read(rows, share=0.5)
    assert 160 < len(half) < 240
    assert read(rows[::-1], share=0.5) == half
    assert read(rows, share=0.25) < half


def test_a_report_describes_what_is_read_of_each_split(tmp_path):
    says = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "So."}]
    write(tmp_path, "train.jsonl", {"messages": says})
    row = {"problem": "3 + 5?", "final_answer": "8", "solution": "8", "level": 5}
    write(tmp_path, "test.jsonl", row)
    report = SourceReport(path="folder")
    assert len([*problem_files.read_problems(FileSource(path=str(tmp_path)), report)]) == 2
    assert report.columns == {
        "messages": "messages", "question (test)": "problem", "answer (test)": "final_answer",
        "solution (test)": "solution",
    }  # fmt: skip
    text = problem_files.describe_report(report)
    assert all(name in text for name in ("conversations, of test problems", "level", "problem"))


def test_other_tasks_are_made_of_generated_problems_alone():
    mixture = MixtureConfig(judge=0.5, critique=0.0, revise=0.5, max_prompt_tokens=192)
    config = ADAPTER.validate_python(WORDS)
    problems = catalogue.read_source(config, 0).problems
    exchanges = catalogue.make_exchanges(config, mixture, problems, 0)
    assert {row.task for row in exchanges} == {"judge", "revise"}
    assert catalogue.make_exchanges(config, None, problems, 0) == []
    files = {"source": {"path": "a.jsonl"}, "prompt_template": "{question}", "max_prompt_tokens": 9,
             "max_completion_tokens": 9, "max_bad_share": 0.1,
             "shares": {"preference": 0.1, "dev": 0.1, "test": 0.1}}  # fmt: skip
    prepare: Any = catalogue.PreparationConfig.model_validate
    none = mixture.model_copy(update={"judge": 0.0, "revise": 0.0})
    for idle, longest in ((None, 0), (none, 192)):
        assert prepare(files | {"mixture": idle}).max_message_tokens == longest
    with pytest.raises(ValueError, match=r"mixture.*judge=0\.5"):
        prepare(files | {"mixture": mixture})


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
    tests = sums(7, split="test")
    fixed = splitting.split_problems([*everything, *tests], SHARES)
    assert fixed["test"] == tests
    assert len(fixed["train"]) / 4000 == pytest.approx(0.7, abs=0.03)


def test_the_place_of_a_row_and_a_number_beyond_floats_are_no_scores(tmp_path):
    """Columns are found by whole rows, however many broken ones stand before them."""
    rows = [{"prompt": f"{n}?", "response": "So.", "meta": {"place": n, "huge": 10**400}}
            for n in range(300)]  # fmt: skip
    source = FileSource.model_validate(write(tmp_path, "m.jsonl", *[[1]] * 200, *rows))
    screened = catalogue.read_source(source, 0)
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


def test_a_dev_set_of_the_source_is_kept_and_not_trained_on():
    rows = [*sums(60), *(replace(row, id=f"d{row.id}", split="dev") for row in sums(20))]
    screened = catalogue.screen_rows(rows)
    splits = splitting.split_problems(screened.problems, SHARES)
    assert [row.id for row in splits["dev"]] == [row.id for row in rows[60:]]
    assert {row.reason for row in screened.bad} == {"overlap: the question is also a dev question"}
    assert len(screened.bad) == 20


@pytest.mark.parametrize(
    ("count", "shares", "has_test", "words"),
    [(3, SHARES, False, "3 problems, of 3"), (4000, SHARES, True, "test split"),
     (100, Shares(preference=0.5, dev=0.3, test=0.3), False, r"1\.1")],
)  # fmt: skip
def test_a_split_without_problems_is_refused(count, shares, has_test, words):
    with pytest.raises(ValueError, match=words):
        splitting.split_problems(sums(count), shares, has_test=has_test)


OPENINGS = {
    "user:Hi": "hi", "system:S|user: HI ": "hi", "user:Hi|assistant:Ho|user:And?": "hi",
    "assistant:Hello!|user:Hi|assistant:Ho": "hello! hi", "user:a|user:b|assistant:c": "a b",
    "assistant:Hello!|user:Ho": "hello! ho",
}  # fmt: skip


@pytest.mark.parametrize("turns", OPENINGS)
def test_a_conversation_opens_with_what_stands_before_the_first_answer(turns):
    assert splitting.opening(read_turns(turns)) == OPENINGS[turns]


def test_normalising_drops_only_what_does_not_change_a_question():
    assert splitting.normalise_question(" What  IS\n２+2? ") == "what is 2+2?"
    assert splitting.normalise_question("2 - 2?") != splitting.normalise_question("2 + 2?")


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
    asked = [Prompt(id="", task="", question="SAY 1", prompt="", prompt_ids=[], answer=None)]
    apart = preference_files.exclude_openings(pairs[:6], asked)
    assert [row for _, row in apart] == ["say 0", "say 0", "say 2", "say 2"]


def test_solutions_of_a_problem_are_on_one_side_and_counted():
    labels = StepLabels(id="", index=0, prompt="", prompt_ids=[], steps=["a"], step_ids=[[1]],
                        labels=[1.0, 0.4, None], num_completions=[0], true_labels=None,
                        correct=None, source="")  # fmt: skip
    rows = [replace(labels, prompt=f"{text}{i}") for i in range(200) for text in ("say ", "SAY  ")]
    held = [row.prompt.split() for row in step_files.split_solutions(rows, 0.5)["heldout"]]
    small, capital = ({number for word, number in held if word == case} for case in ("say", "SAY"))
    assert small == capital
    with pytest.raises(ValueError, match="max_tokens"):
        step_files.describe_solutions([])
    counts = step_files.describe_solutions([labels, replace(labels, labels=[0.5], prompt="b")])
    assert (counts["solutions"]["erroneous"], counts["solutions"]["problems"]) == (1, 2)
    assert counts["labels"] == {"steps": 2, "labelled": 3, "wrong": 1, "mean": 0.633333}


def test_a_step_is_cut_at_the_separator_and_labelled_at_its_last_part():
    whole = RawSteps(line=1, question="", steps=["a", "b:\n- c\n \n- d", "e\nf"], source="",
                     labels=[1.0, 0.0, None], num_completions=[0, 8, 9],
                     true_labels=[True, False, False])  # fmt: skip
    result = step_files.cut_steps(whole, "\n")
    # A blank line belongs to the part before it; what is tokenised ends with one more separator.
    assert result.steps == ["a", "b:", "- c\n ", "- d", "e", "f"]
    assert result.labels == [1.0, None, None, 0.0, None, None]
    assert result.true_labels == [True, None, None, False, None, False]
    assert result.num_completions == [0, 0, 0, 8, 0, 9]
    assert step_files.cut_steps(whole, "\n\n") == whole
    assert step_files.cut_steps(replace(whole, true_labels=None), "\n").true_labels is None


# --- near copies, repetitions, counts


def grams(first: int, last: int) -> str:
    return " ".join(f"w{number}" for number in range(first, last))


def test_a_near_copy_holds_more_than_half_of_a_questions_8_grams():
    question, short = grams(0, 17), "too short to have an eight gram"  # 10 different 8-grams
    texts = [grams(0, 12), f"x {grams(0, 13).upper()}!", grams(8, 17), short, "", question]
    nearest = [*near_copies.find_near_copies(texts, [question, short])]
    assert nearest == [None, 0, None, None, None, 0]
    # Six 8-grams of the first question and all of the second: the nearer one.
    assert [*near_copies.find_near_copies([grams(0, 13)], [question, grams(2, 11)])] == [1]


@pytest.mark.parametrize(("count", "is_template"), [(1, False), (2, False), (3, True)])
def test_an_8_gram_of_three_questions_is_a_template(count, is_template):
    questions = [f"{grams(0, 9)} {number}" for number in range(count)]
    found = [*near_copies.find_near_copies([grams(0, 9)], questions)]
    assert found == [None if is_template else 0]


@pytest.mark.parametrize("template", [
    "小明有{}个苹果，妈妈又给了他{}个，然后他吃掉了{}个。请问小明现在一共还有多少个苹果没有吃？",
    "สมชายมีส้ม{}ผลแม่ให้เขาอีก{}ผลแล้วเขากินไป{}ผลตอนนี้สมชายมีส้มเหลืออยู่ทั้งหมดกี่ผล",
])  # fmt: skip
def test_near_copies_are_known_in_languages_without_spaces(template):
    question, other = template.format(3, 4, 2), template.format(51, 62, 8)
    assert [*near_copies.find_near_copies([f"({question})", other], [question])] == [0, None]


def test_near_copies_of_the_test_are_left_out_of_the_other_splits():
    test = change(1, id="t", question=grams(0, 17), split="test")
    copy = change(2, id="c", question="Copy this.", solution=grams(0, 17))
    splits = {"train": [GOOD, copy], "preference": [GOOD], "dev": [GOOD], "test": [test]}
    screened = catalogue.ScreenedSource(num_rows=5)
    assert catalogue.exclude_near_copies(splits, screened) == splits | {"train": [GOOD]}
    assert [row.reason for row in screened.bad] == ["near copy: of test question 't'"]
    screened.check_share(0.0)
    with pytest.raises(ValueError, match="train"):
        catalogue.exclude_near_copies(splits | {"train": [copy]}, screened)
    talk = (Turn("user", grams(0, 17)), Turn("assistant", "?"), USER)
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
    labelled = [UnpairedExample(**names, completion_ids=[1] * 3, desirable=n > 0) for n in range(4)]
    assert preference_files.describe_labelled(labelled)["desirable_share"] == 0.75


@pytest.mark.parametrize(
    ("values", "ranks"),
    [(range(1, 101), (1, 50, 95, 100)), ([7], (7, 7, 7, 7)), ([3, 1], (1, 1, 3, 3)), ([], ())],
)
def test_lengths_are_nearest_ranks(values, ranks):
    assert (*data_summary.length_quantiles(values).values(),) == ranks


def test_prepared_rows_are_counted_by_split_task_and_question():
    summary = data_summary.DataSummary()
    names: Any = {"id": "", "task": "", "prompt": ""}
    for number, question in enumerate(("a?", "A ?", "b?", "b? ", "B?")):
        split = "train" if number < 4 else "test"
        ids = [1] * len(split)
        summary.add_prompt(split, Prompt(**names, question=question, prompt_ids=ids, answer=None))
    for number, task in enumerate(("solve", "judge", "solve"), start=1):
        ids = [*range(number), 7] if task == "judge" else [number]
        summary.add_demonstration(Demonstration(**names | {"task": task}, completion_ids=ids,
            prompt_ids=[9 - number], completion="a\n\nb\n"))  # fmt: skip
    card = summary.describe()
    empty = {"preference": 0, "dev": 0}
    assert card["counts"] == {"train": 4, "test": 1, "demonstrations": 3} | empty
    overlaps = {name: number for name, number in card["overlaps"].items() if number}
    assert overlaps == {"train-test": 1}
    assert card["repeated_questions"] == {"train": 1, "test": 0} | empty
    assert card["demonstrations_by_task"] == {"solve": 2, "judge": 1}
    assert sorted(summary.all_completion_tokens()) == [1, 1, 3]
    assert (summary.completion_lines, summary.longest_prompt, summary.largest_id) == (6, 5, 8)
    assert summary.example is not None
    assert summary.example.completion_ids == [1]
    summary.add_demonstration(replace(summary.example, completion_ids=[2, 99]))
    assert summary.largest_id == 99
