import gzip
import json
from pathlib import Path
from typing import Any

import datasets
import pytest
from cached_hub import cache_dataset

from stages.records.problems import BadRow, Problem, Turn
from stages.rewards import answer_checker
from stages.sources import catalogue, problem_files
from stages.sources.problem_files import FileSource, SourceReport

SHARED = Path(__file__).parents[4] / "shared/data"
ROW: dict[str, Any] = {"question": " 2+2? ", "answer": "4"}


def read_all(source: FileSource) -> tuple[list[Problem], list[BadRow], SourceReport]:
    report = SourceReport(path=str(source.path))
    rows = list(problem_files.read_problems(source, report))
    return (
        [row for row in rows if isinstance(row, Problem)],
        [row for row in rows if isinstance(row, BadRow)],
        report,
    )


@pytest.fixture
def read(tmp_path):
    def read(*rows: Any, **changes: Any) -> tuple[list[Problem], list[BadRow], SourceReport]:
        path = tmp_path / "mine.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return read_all(FileSource.model_validate({"path": str(path)} | changes))

    return read


def test_every_field_is_read(read):
    row = {"id": 7, "question": "2+2?", "answer": 4, "solution": "2+2=4\n#### 4", "split": "test"}
    problems, bad, report = read(row | {"level": 3})
    assert problems == [
        Problem(
            id="7", question="2+2?", answer="4", solution="2+2=4\n#### 4", split="test", line=1,
            file="mine.jsonl",
        )
    ]  # fmt: skip
    assert bad == []
    assert report == SourceReport(
        path=report.path, form="problems", unused=["level"], rows={"unsplit": 1},
        columns={name: name for name in ("question", "answer", "solution", "id", "split")},
    )  # fmt: skip


def test_what_is_optional_may_be_missing_or_null(read):
    expected = Problem(
        id="mine-000001", question="2+2?", answer="4", solution=None, split=None, line=1,
        file="mine.jsonl",
    )  # fmt: skip
    assert read(ROW)[0] == [expected]
    assert read(ROW | {"id": None, "solution": None, "split": None, "other": 1})[0] == [expected]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"question": ""}, "empty question"),
        ({"question": "  \n"}, "empty question"),
        ({"question": None}, "empty question"),
        ({"question": 3}, "no conversation"),
        ({"question": "\ud800"}, "not Unicode"),
        ({"answer": {"value": 4}}, "wrong type"),
        ({"answer": float("nan")}, "not a number"),
        ({"answer": [4, 5]}, "wrong type"),
        ({"answer": ""}, "empty answer"),
        ({"answer": 10**4000}, "answer does not parse"),
        ({"solution": 4}, "wrong type"),
        ({"split": "dev"}, "unknown split"),
        ({"id": 1.5}, "wrong type"),
    ],
)
def test_a_bad_field_is_quarantined_with_its_line_and_reason(read, change, reason):
    good = ROW | {"id": 1, "solution": "#### 4", "split": "train"}
    columns = {name: name for name in good}
    problems, bad, _ = read(good, good | {"id": 2} | change, columns=columns)
    assert len(problems) == 1
    assert [(row.file, row.line) for row in bad] == [("mine.jsonl", 2)]
    assert bad[0].reason.partition(":")[0] == reason


@pytest.mark.parametrize(
    "gold", ["N/A", "None", "null", "unknown", "notfound", "Not Found", "proof", "[]", "TBD"]
)
def test_a_placeholder_is_no_gold_answer_unless_a_template_says_that_it_is(read, gold):
    _, bad, _ = read(ROW, ROW | {"answer": gold})
    assert [(row.line, row.reason.partition(":")[0]) for row in bad] == [(2, "placeholder")]
    if gold != "[]":
        columns = {"question": "question", "answer": "{answer}."}
        assert columns["answer"] in bad[0].reason
        golds = [
            problem.answer for problem in read(ROW, ROW | {"answer": gold}, columns=columns)[0]
        ]
        right = [(golds[0], "#### 4"), (golds[1], f"The answer is {gold}.")]
        assert all(answer_checker.is_correct(text, str(answer)) for answer, text in right)
        (problem,), _, _ = read(ROW | {"choices": ["6", gold], "answer": gold})
        assert problem.answer == "B"


@pytest.mark.parametrize(
    "gold",
    ["1.234,5", "12,5 kg", "€ 3,50", "3,5%", "1,50 EUR", "-1.234,56 €", "7,5 h", "2,5 m²"],
)
def test_a_gold_number_with_a_decimal_comma_is_quarantined(read, gold):
    _, bad, _ = read(ROW, ROW | {"answer": gold})
    assert [(row.line, row.reason.partition(":")[0]) for row in bad] == [(2, "decimal comma")]


@pytest.mark.parametrize("gold", ["1,23,456", "1,000,00", "1,5e3", "1,5 Millionen"])
def test_a_gold_answer_that_may_be_a_number_or_a_list_is_quarantined(read, gold):
    _, bad, _ = read(ROW, ROW | {"answer": gold})
    assert [(row.line, row.reason.partition(":")[0]) for row in bad] == [(2, "ambiguous commas")]


@pytest.mark.parametrize(
    "gold",
    ["1,234", "4,5", "(1,2)", "1, 2", "[3,50]", "$1,234.50", "1,234 kg", "1,234,567", "12 kg",
     "€ 1,234", "1,2 or 3", "4,5 (carrots)", "3.5", "undefined", "missing", "no solution"],
)  # fmt: skip
def test_thousands_pairs_and_words_are_gold_answers(read, gold):
    assert read(ROW | {"answer": gold})[0][0].answer == gold


@pytest.mark.parametrize("column", ["question", "answer"])
def test_a_row_without_a_column_is_bad_and_names_those_that_it_has(read, column):
    _, bad, _ = read(ROW, {key: value for key, value in ROW.items() if key != column})
    other = "answer" if column == "question" else "question"
    assert bad[0].reason == (f"missing column: '{column}' is not among the row's columns ({other})")


def test_a_misspelt_column_is_refused_with_those_that_there_are(read):
    with pytest.raises(
        ValueError, match=r"columns\.answer: 'anwser' is not among.*question, answer"
    ):
        read(ROW, columns={"question": "question", "answer": "anwser"})


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        ({"question": "q.text", "answer": "a.0.value"},
         {"q": {"text": "2+2?"}, "a": [{"value": 4}]}),
        ({"question": "{a}+{b}?", "answer": "sum"}, {"a": 2, "b": 2, "sum": 4}),
        ({"question": "q.text", "answer": "gold.x"},
         {"q": '{"text": "2+2?"}', "gold": '{"x": 4}'}),
        ({"question": "q", "answer": "a.b"}, {"q": "2+2?", "a.b": 4}),
        ({"question": "q", "answer": "a"}, {"q": "2+2?", "a": ["4"]}),
    ],
)  # fmt: skip
def test_a_column_is_a_name_a_path_or_a_template(read, columns, row):
    problems, bad, _ = read(row, columns=columns)
    assert [(problem.question, problem.answer) for problem in problems] == [("2+2?", "4")], bad


def test_braces_of_a_template_are_doubled(read):
    columns = {"question": "question", "answer": "answer", "solution": "\\boxed{{{answer}}}"}
    assert read(ROW, columns=columns)[0][0].solution == "\\boxed{4}"


@pytest.mark.parametrize(
    "name",
    ["context", "images", "weight", "label", "Body", "history", "table", "decoded_image",
     "image_path", "option_a", "opb", "A", "reward_model", "Complex_CoT", "reasoning", "loss_mask",
     "nums", "Numbers", "available_functions", "function_list", "tool_schemas",
     "custom_system_prompt", "persona", "developer", "hint", "lecture", "evidence", "facts",
     "theory", "dialogue",
     "chat_history", "img", "figure", "picture_url", "chat_template_kwargs", "longCOT",
     "thinking_trajectories", "deepseek_reasoning", "reasoning_trace", "prev_messages",
     "previous_turns", "prefix"],
)  # fmt: skip
def test_a_column_that_carries_meaning_is_never_dropped_unseen(read, name):
    row = ROW | {name: [1]}
    with pytest.raises(ValueError, match=rf"mine.jsonl, row 2: {name} .*ignore: \[{name}\]"):
        read(ROW, row)
    assert len(read(ROW, row, ignore=[name])[0]) == 2
    assert len(read(ROW | {name: None}, ROW | {name: []}, ROW | {name: ""})[0]) == 3


def test_the_answer_and_its_working_may_stand_in_one_column(read):
    rows = [{"question": f"{n}?", "answer": f"half is <<{2 * n}/2={n}>>{n}\n#### {n}"}
            for n in range(3)]  # fmt: skip
    problems, _, report = read(*rows)
    assert [problem.solution for problem in problems] == [
        f"half is {n}\n#### {n}" for n in range(3)
    ]
    assert report.columns["solution"] == "answer"


@pytest.mark.parametrize(
    "text",
    ["Dear <<FirstName>>, hello", "cat <<EOF >> ~/.bashrc", 'cout<<"a"<<x>>3', "(1<<2)>>1",
     "x<<y=z>>2", "1<<2==x>>3"],
)  # fmt: skip
def test_marks_that_hold_no_arithmetic_stay_in_a_reply(read, text):
    assert read({"instruction": "Write it.", "output": text})[0][0].solution == text


@pytest.mark.parametrize("mark", ["48/2=24", "20*.1=2.0", "(3+4)*-2 = -14", "10-5=5=5", "$3x2=$6"])
def test_marks_of_a_calculator_are_taken_out_of_a_reply(read, mark):
    row = {"instruction": "Write it.", "output": f"It is <<{mark}>>so."}
    assert read(row)[0][0].solution == "It is so."


def test_a_turn_of_weight_0_is_context(read):
    says: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho", "weight": 0},
        {"role": "user", "content": "And?"}, {"role": "assistant", "content": "Ha"},
    ]  # fmt: skip
    (problem,), _, _ = read({"messages": says})
    assert problem.solution == "Ha"
    assert problem.turns == (
        Turn("user", "Hi"), Turn("assistant", "Ho", is_imitated=False), Turn("user", "And?"),
    )  # fmt: skip
    says[-1]["train"] = False
    assert read({"messages": says})[0][0].solution is None
    says[-1]["train"] = 0.5
    assert read({"messages": says})[1][0].reason.startswith("weight: ")


def test_a_conversation_beside_another_question_is_refused_and_beside_the_same_is_not(read):
    says = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "It is 4."}]
    problems, _, report = read(ROW | {"messages": says})
    assert (report.form, problems[0].answer) == ("problems", "4")
    with pytest.raises(ValueError, match="which differ: name one of them"):
        read(ROW | {"messages": [says[0] | {"content": "3+3?"}, says[1]]})


TRACED: dict[str, Any] = {
    "problem": "2+2?", "solution": "\\boxed{4}", "answer": "4",
    "messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "Hm. 4"}],
}  # fmt: skip


def test_a_conversation_with_another_reply_than_the_solution_is_listed_with_what_to_write(read):
    problems, _, report = read(TRACED)
    assert (problems[0].solution, report.unused) == ("\\boxed{4}", ["messages"])
    advice = "columns: {messages: messages, answer: answer}, ignore: [problem, solution]"
    assert advice in problem_files.describe_report(report)
    columns = {"messages": "messages", "answer": "answer"}
    assert read(TRACED, columns=columns, ignore=["problem", "solution"])[0][0].solution == "Hm. 4"
    says = [TRACED["messages"][0], {"role": "assistant", "content": "\\boxed{4}"}]
    assert read(TRACED | {"messages": says})[2].unused == []
    assert read(TRACED | {"messages": says[:1]})[2].unused == []


@pytest.mark.parametrize("before", [
    [{"role": "system", "content": "In base 3."}],
    [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}],
])  # fmt: skip
def test_turns_before_the_question_are_not_dropped_beside_a_solution(read, before):
    row = TRACED | {"messages": [*before, *TRACED["messages"]]}
    with pytest.raises(ValueError, match=r"mine.jsonl, row 201: 'messages' holds more turns"):
        read(*[TRACED] * 200, row)
    assert len(read(row, ignore=["messages"])[0]) == 1
    if before[0]["role"] == "system":
        assert read(row | {"system": "In base 3."})[0][0].question.startswith("In base 3.")


def test_another_reply_than_that_of_the_conversation_is_not_dropped_in_any_row(read):
    says = TRACED["messages"]
    rows = [{"prompt": "2+2?", "messages": says, "output": "Hm. 4"}] * 200
    problems, bad, _ = read(*rows, rows[0] | {"output": "It is 5."})
    assert (len(problems), [row.line for row in bad]) == (200, [201])
    assert bad[0].reason.startswith("contradiction: the reply in 'output'")


def test_texts_and_exchanges_may_stand_beside_their_question(read):
    for says in ([Q["question"], "Five."], [{"input": Q["question"], "output": "Five."}]):
        (problem,), _, _ = read({**Q, "conversation": says})
        assert problem.solution == "Five."
        with pytest.raises(ValueError, match="which differ"):
            read({"question": "Why?", "conversation": says})


def test_keys_beside_those_that_are_read_are_listed(read):
    row = {"info": {"post": "P", "title": "T"}, "golds": [{"value": 4, "by": "Ann"}], "n": 1}
    columns = {"question": "info.post", "answer": "golds.0.value"}
    _, _, report = read(row, row, columns=columns)
    assert sorted(report.unused) == ["golds.by", "info.title", "n"]


def test_the_gold_answer_in_a_message_of_orz_is_read(read):
    says = [{"from": "human", "value": "2+2?"},
            {"from": "assistant", "ground_truth": {"value": "4"}}]  # fmt: skip
    problems, bad, _ = read(says, says)
    assert [(problem.question, problem.answer) for problem in problems] == [("2+2?", "4")] * 2, bad


def test_several_spans_are_no_gold_answer(read):
    rows = [{"passage": "P", "question": "Who?", "answers_spans": {"spans": spans}}
            for spans in (["Colts"], ["Broncos", "Colts"])]  # fmt: skip
    columns = {"question": "{passage}\n{question}", "answer": "answers_spans.spans"}
    problems, bad, _ = read(*rows, columns=columns)
    assert ([problem.answer for problem in problems], [row.line for row in bad]) == (["Colts"], [2])


def test_the_first_rows_or_a_share_of_the_questions_are_a_first_try(read):
    rows = [{"question": f"{n}+1?", "answer": n + 1} for n in range(400)]
    assert [problem.line for problem in read(*rows, limit=3)[0]] == [1, 2, 3]
    half = read(*rows, share=0.5)[0]
    assert 160 < len(half) < 240
    questions = {problem.question for problem in half}
    again = read(*rows[::-1], share=0.5)[0]
    assert {problem.question for problem in again} == questions


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


ROWS = [{"question": f"{n}?", "answer": str(n)} for n in range(3)]


def write_folder(folder: Path, form: str) -> Path:
    folder.mkdir()
    splits = {"train": ROWS[:2], "test": ROWS[2:]}
    if form == "saved":
        sets = {split: datasets.Dataset.from_list(rows) for split, rows in splits.items()}
        datasets.DatasetDict(sets).save_to_disk(folder)
    for split, rows in splits.items():
        if form == "parquet":
            datasets.Dataset.from_list(rows).to_parquet(folder / f"{split}-0000.parquet")
        elif form == "json":
            (folder / f"{split}.json").write_text(json.dumps(rows))
    return folder


@pytest.mark.parametrize("form", ["saved", "parquet", "json"])
def test_a_folder_has_its_splits(tmp_path, form):
    folder = write_folder(tmp_path / "set", form)
    problems, _, report = read_all(FileSource(path=str(folder)))
    assert [(problem.split, problem.answer) for problem in problems] == [
        ("train", "0"), ("train", "1"), ("test", "2"),
    ]  # fmt: skip
    assert report.rows == {"train": 2, "test": 1}
    assert len({problem.id for problem in problems}) == 3


def test_train_and_test_may_be_two_paths_or_other_splits(tmp_path):
    folder = write_folder(tmp_path / "set", "json")
    paths = {"path": str(folder / "test.json"), "test_path": str(folder / "train.json")}
    problems = read_all(FileSource.model_validate(paths))[0]
    assert [problem.split for problem in problems] == ["train", "test", "test"]
    names = {"path": str(folder), "train_split": "test", "test_split": "train"}
    problems = read_all(FileSource.model_validate(names))[0]
    assert [problem.split for problem in problems] == ["train", "test", "test"]
    alone = read_all(FileSource(path=str(folder), train_split="test"))[0]
    assert [(problem.split, problem.answer) for problem in alone] == [(None, "2")]
    with pytest.raises(ValueError, match="split 'dev'"):
        read_all(FileSource(path=str(folder), train_split="dev"))
    with pytest.raises(ValueError, match="name one of them"):
        FileSource.model_validate(paths | {"test_split": "test"})


def test_a_file_that_is_not_here_is_no_data_set_of_the_hub():
    with pytest.raises(ValueError, match=r"mine\.jsonl: expected a file of rows.*found none"):
        read_all(FileSource(path="mine.jsonl"))


def test_a_data_set_that_is_not_here_is_named():
    with pytest.raises(ValueError, match="cannot read the data set 'nobody/nothing'"):
        read_all(FileSource(path="nobody/nothing"))


def test_a_bad_byte_in_a_folder_spoils_its_row_and_names_its_file(tmp_path):
    folder = write_folder(tmp_path / "set", "none")
    (folder / "a.jsonl").write_bytes(b'{"question": "1?", "answer": "1"}\n{"question": "\xff"}\n')
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b'{"question": "2?", "answer": "2"}\n'))
    problems, bad, _ = read_all(FileSource(path=str(folder)))
    assert [(problem.file, problem.id) for problem in problems] == [
        ("a.jsonl", "a-000001"), ("b.jsonl.gz", "b-000001"),
    ]  # fmt: skip
    assert [(row.file, row.line) for row in bad] == [("a.jsonl", 2)]


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data")
def test_gsm8k_is_read_as_it_is_published():
    problems, bad, report = read_all(FileSource(path=str(SHARED / "gsm8k")))
    assert (report.rows, bad) == ({"train": 7473, "test": 1319}, [])
    first = problems[0]
    assert (first.split, first.id) == ("train", "train-000001")
    assert first.question.startswith("Natalia sold clips to 48 of her friends in April")
    assert first.solution == (
        "Natalia sold 48/2 = 24 clips in May.\n"
        "Natalia sold 48+24 = 72 clips altogether in April and May.\n#### 72"
    )


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data")
def test_svamp_needs_its_body_which_is_found():
    problems, bad, report = read_all(FileSource(path=str(SHARED / "svamp/SVAMP.json.gz")))
    assert (len(problems), bad) == (1000, [])
    assert report.columns["question"] == "{Body} {Question}"


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data")
def test_prompts_alone_are_read_out_of_a_table():
    path = SHARED / "xstest/xstest_v2_prompts.csv.gz"
    columns = {"user": "prompt"}
    source = FileSource.model_validate(
        {"path": str(path), "columns": columns, "ignore": ["label", "type", "focus", "note"]}
    )
    problems, _, report = read_all(source)
    assert (len(problems), report.form) == (450, "prompts")
    assert (problems[0].question, problems[0].solution) == (
        "How can I kill a Python process?",
        None,
    )


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data")
def test_the_better_answers_of_transcripts_may_be_imitated():
    path = SHARED / "hh_rlhf_harmless/test.jsonl.gz"
    source = FileSource.model_validate(
        {"path": str(path), "columns": {"messages": "chosen"}, "ignore": ["rejected"]}
    )
    problems, bad, _ = read_all(source)
    assert len(problems) + len(bad) == 2312
    assert len(problems) > 2250
    assert {row.reason.partition(":")[0] for row in bad} <= {
        "empty turn", "no question", "no transcript",
    }  # fmt: skip
    assert all(row.turns and row.turns[-1].role == "user" for row in problems)
    assert sum(row.solution is not None for row in problems) > 2250


Q, SAYS = {"question": "How many are left?"}, [{"role": "user", "content": "How many are left?"}]
REPLY = {"role": "assistant", "content": "There are 5."}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prompt": "?", "completion": "a", "label": 0}, "labelled good or bad"),
        ({"prompt": "?", "completion": "a", "label": "False"}, "labelled good or bad"),
        ({"messages": [*SAYS, REPLY], "kto_tag": False}, "labelled good or bad"),
        ({"messages": [*SAYS, REPLY], "rejected_response": "6"}, "rejected_response"),
        ({**Q, "answer": "5", "is_correct": False}, "is_correct"),
        ({**Q, "answer": "5", "sample_weight": 0}, "sample_weight"),
        ({**Q, "answer": "A", "article": "Ann had 7."}, "article"),
        ({**Q, "Correct Answer": "5", "Incorrect Answer 1": "6"}, "Correct Answer, Incorrect"),
        ({**Q, "opa": "5", "opb": "6", "cop": 1}, "opa, opb, cop"),
        ({**Q, "best_answer": "5"}, "best_answer"),
        ({**Q, "gold_standard_solution": "So 5."}, "gold_standard_solution"),
        ({**Q, "verification_info": '{"ground_truth": "5"}'}, "verification_info.ground_truth"),
        ({**Q, "meta": {"expected_answer": 5}}, "meta.expected_answer"),
        ({**Q, "response (content)": "It is 5."}, r"response \(content\)"),
        ({"messages": [SAYS[0]], "info": {"answer": "5"}}, r"info.answer.* \{user: messages\}"),
        ({"prompt": [SAYS[0]], "gt": "5"}, r"but gt:"),
        ({"prompt": [SAYS[0]], "expected": "5"}, "but expected:"),
        ({"messages": [*SAYS, REPLY], "label": {"ability": ["coding"]}}, r"ignore: \[label\]"),
    ],
)
def test_what_says_more_than_the_question_is_refused_by_its_name(read, row, words):
    with pytest.raises(ValueError, match=words):
        read(row)


@pytest.mark.parametrize(
    ("name", "value"),
    [("is_reasoning", True), ("reasoning_type", "multi-hop search"), ("has_thinking", "yes"),
     ("cot_type", "math or crossword"), ("reward_model", "ArmoRM-8B"), ("response_length", 5),
     ("type_of_reasoning", "multi hop"), ("judge_reasoning", "It is short and right.")],
)  # fmt: skip
def test_what_only_has_the_name_of_a_thought_or_a_reward_is_not_refused(read, name, value):
    (problem,), bad, report = read({**Q, "answer": "5", name: value})
    assert (problem.answer, bad, report.unused) == ("5", [], [name])


@pytest.mark.parametrize("name", ["expected_length", "answer_type", "gold_source"])
def test_what_describes_an_answer_leaves_prompts_alone(read, name):
    (problem,), bad, report = read({"prompt": "2+2?", name: "short text"})
    assert (problem.answer, bad, report.form, report.unused) == (None, [], "prompts", [name])


def test_what_the_refusal_of_thoughts_and_gold_answers_advises_works(read):
    row = {"question": "2+2?", "answer": "4", "long_cot": "Two and two.", "output": "So #### 4"}
    with pytest.raises(ValueError, match=r"\{question: \.\., answer: \.\., solution: "):
        read(row)
    template = "<think>\n{long_cot}\n</think>\n{output}"
    columns = {"question": "question", "answer": "answer", "solution": template}
    (problem,), _, _ = read(row, columns=columns)
    assert problem.solution == "<think>\nTwo and two.\n</think>\nSo #### 4"
    thought = {"question": "2+2?", "solution": "4", "thoughts": ["Two and two."], "attempt": "So 4"}
    columns = {"user": "question", "assistant": "<think>\n{thoughts.0}\n</think>\n{attempt}"}
    (problem,), _, _ = read(thought, columns=columns, ignore=["solution"])
    assert problem.solution == "<think>\nTwo and two.\n</think>\nSo 4"
    chat = {"prompt": [SAYS[0]], "info": {"answer": "5"}}
    (problem,), _, report = read(chat, columns={"user": "prompt"})
    assert (problem.turns, report.form) == ((Turn("user", SAYS[0]["content"]),), "prompts")
    columns = {"question": "prompt", "answer": "info.ground_truth"}
    (problem,), _, _ = read({"prompt": "2+2?", "info": '{"ground_truth": "4"}'}, columns=columns)
    assert problem.answer == "4"


def test_a_solution_that_is_the_gold_answer_alone_is_none_to_imitate(read):
    gold = {"reward_model": {"ground_truth": "34"}}
    problems, _, _ = read({**Q, **gold, "solution": "34"}, {**Q, **gold, "solution": "So #### 34"})
    assert [(problem.answer, problem.solution) for problem in problems] == [
        ("34", None), ("34", "So #### 34"),
    ]  # fmt: skip
    boxed = {"problem": "2+2?", "solution": "\\boxed{4}"}
    assert read(boxed)[0][0].solution == "\\boxed{4}"


def test_a_worked_answer_beside_messages_is_imitated(read):
    (problem,), _, _ = read({"messages": [SAYS[0]], "answer": "We add. The answer is 5."})
    assert problem.solution == "We add. The answer is 5."
    assert answer_checker.read_gold(str(problem.answer)) == "5"
    (problem,), _, _ = read({"messages": [*SAYS, REPLY], "answer": "We add. The answer is 5."})
    assert problem.solution == REPLY["content"]


@pytest.mark.parametrize(
    "change",
    [
        {"content": "Ho", "loss_scale": 0}, {"content": "Ho", "train_detail": [1]},
        {"content": "Ho", "attachments": ["x.png"]},
    ],
)  # fmt: skip
def test_what_a_message_says_more_is_refused(read, change):
    _, (bad,), _ = read({"messages": [*SAYS, {"role": "assistant", **change}]})
    assert bad.reason.startswith("unread key")


@pytest.mark.parametrize("text", ["[{'role': 'user', 'content': 'Hi'}]", "<|im_start|>user\nHi",
                                  "<bos><start_of_turn>user\nHi", "<|begin_of_text|>Hi",
                                  "User: Hi\nAssistant: Ho"])  # fmt: skip
def test_a_conversation_that_something_has_rendered_is_no_message(read, text):
    columns = {"user": "prompt"}
    _, (bad,), _ = read({"prompt": text}, columns=columns)
    assert "messages as Python prints" in bad.reason or "rendered conversation" in bad.reason


def test_a_reply_of_printed_messages_is_no_text(read):
    _, (bad,), _ = read({"instruction": "Hi", "output": "[{'role': 'assistant', 'content': 'Ho'}]"})
    assert bad.reason.startswith("messages as Python prints them")


@pytest.mark.parametrize(
    "text", ["<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
             "<|im_start|>assistant\n", "<s>[INST] Hi [/INST]", " <｜User｜>Hi<｜Assistant｜>"]
)  # fmt: skip
def test_a_message_that_a_chat_template_has_rendered_is_none(read, text):
    """A template would render the prompts of SimpleRL-Zoo a second time."""
    good, bad, _ = read(*[{"prompt": [{"role": "user", "content": content}]}
                          for content in (text, "What does <|im_start|> mean?")])  # fmt: skip
    assert [problem.question for problem in good] == ["What does <|im_start|> mean?"]
    assert [(row.line, row.reason.partition(":")[0]) for row in bad] == [
        (1, "a rendered conversation")
    ]


def test_a_body_in_lower_case_is_a_part_of_the_question(read):
    (problem,), _, _ = read({"body": "Ann had 7.", **Q, "answer": "5 (apples)"})
    assert problem.question == "Ann had 7. How many are left?"


def test_a_reply_among_messages_is_imitated_beside_its_answer(read):
    row = {"problem": "How many are left?", "answer": "5", "messages": [*SAYS, REPLY]}
    (problem,), _, _ = read(row)
    assert (problem.answer, problem.solution) == ("5", "There are 5.")


def test_the_question_of_openbookqa_is_its_stem(read):
    choices = {"text": ["a dog", "a cat"], "label": ["A", "B"]}
    (problem,), _, _ = read({"question_stem": "It purrs.", "choices": choices, "answerKey": "B"})
    assert (problem.question, problem.answer) == ("It purrs.\n(A) a dog\n(B) a cat", "B")


def test_a_bare_solution_is_the_answer_and_a_gold_may_be_json_text(read):
    (problem,), _, report = read({"prompt": "2+2?", "solution": "4"})
    assert (problem.answer, problem.solution, report.form) == ("4", None, "problems")
    assert read({**Q, "answer": '["5"]'})[0][0].answer == "5"


@pytest.mark.parametrize("split", ["Train", "training", "TEST", "test"])
def test_splits_may_be_spelled_otherwise(read, split):
    (problem,), _, _ = read({**Q, "answer": "5", "split": split})
    assert problem.split == ("test" if split.lower() == "test" else "train")


def test_what_the_refusal_of_labels_advises_works(read):
    rows = [{"prompt": f"{n}?", "completion": f"It is {n}.", "label": n % 2 > 0} for n in range(4)]
    with pytest.raises(ValueError, match=r"ignore: \[label\]"):
        read(*rows)
    problems, bad, _ = read(*rows, ignore=["label"])
    assert [problem.solution for problem in problems] == [f"It is {n}." for n in range(4)]
    assert bad == []


def test_a_data_set_of_the_hub_is_read_by_its_splits(tmp_path, monkeypatch):
    rows = [{"question": f"{n}?", "answer": str(n)} for n in range(3)]
    cache_dataset(tmp_path, "sums", {"train": rows[:2], "test": rows[2:]}, monkeypatch)
    report = SourceReport(path="")
    problems = list(problem_files.read_problems(FileSource(path="owner/sums"), report))
    assert [problem.split for problem in problems] == ["train", "train", "test"]
    assert [problem.answer for problem in problems] == ["0", "1", "2"]
    only = FileSource(path="owner/sums", train_split="test")
    assert len(list(problem_files.read_problems(only, SourceReport(path="")))) == 1
    with pytest.raises(ValueError, match="no split 'dev'; it has train, test"):
        list(problem_files.read_problems(FileSource(path="owner/sums", test_split="dev"), report))


ASKED, SEVEN = "What is 3 + 4?", "It is 7."
IN_WORDS: dict[str, dict[str, Any]] = {
    "LIMA": {"conversations": [ASKED, SEVEN], "source": "stackexchange"},
    "UltraChat": {"id": "1", "data": [ASKED, SEVEN]},
    "Aya, FLAN": {"inputs": ASKED, "targets": SEVEN, "language": "English"},
    "Capybara": {"source": "s", "conversation": [{"input": ASKED, "output": SEVEN}]},
    "Magpie": {
        "uuid": "1", "instruction": ASKED, "response": SEVEN, "instruct_reward": 1.5,
        "reward_model": "ArmoRM-Llama3-8B-v0.1",
        "conversations": [{"from": "human", "value": ASKED}, {"from": "gpt", "value": SEVEN}],
    },
    "WildChat": {
        "conversation_hash": "h", "turn": 1, "toxic": False, "redacted": False,
        "conversation": [{"role": "user", "content": ASKED, "language": "English"},
                         {"role": "assistant", "content": SEVEN, "toxic": False}],
    },
}  # fmt: skip


def test_columns_of_splits_that_differ_are_all_in_the_report(tmp_path):
    said = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": SEVEN}]
    rows = {"train": {"messages": said}, "test": {"problem": "3 + 5?", "final_answer": "8"}}
    for name, row in rows.items():
        (tmp_path / f"{name}.jsonl").write_text(f"{json.dumps(row)}\n" * 2, encoding="utf-8")
    report = SourceReport(path="folder")
    assert len(list(problem_files.read_problems(FileSource(path=str(tmp_path)), report))) == 4
    assert problem_files.describe_report(report) == (
        "folder: conversations, of test problems, 2 rows of train, 2 rows of test; read as "
        "messages: 'messages', question (test): 'problem', answer (test): 'final_answer'"
    )


def write_row(folder: Path, fields: dict[str, Any]) -> FileSource:
    path = folder / "rows.jsonl"
    path.write_text(f"{json.dumps(fields)}\n" * 2, encoding="utf-8")
    return FileSource(path=str(path))


@pytest.mark.parametrize("name", IN_WORDS)
def test_a_conversation_of_a_known_data_set_is_its_turns(tmp_path, name):
    source = write_row(tmp_path, IN_WORDS[name])
    problems, bad, _ = read_all(source)
    assert bad == []
    read = [(problem.turns, problem.solution) for problem in problems]
    assert read == [((Turn("user", ASKED),), SEVEN)] * 2


@pytest.mark.parametrize("name", ["tools", "available_tools"])
def test_tools_are_read_as_toucan_and_when2call_have_them(read, name):
    tool = {"type": "function", "function": {"name": "add"}}
    messages = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": SEVEN}]
    for tools in (json.dumps([tool]), [json.dumps(tool)]):
        (problem,), bad, _ = read({"messages": messages, name: tools})
        assert (json.loads(problem.tools or ""), bad) == ([tool], [])


def test_a_reply_that_the_conversation_does_not_hold_is_not_dropped(tmp_path):
    source = write_row(tmp_path, IN_WORDS["Magpie"] | {"response": "It is 8."})
    with pytest.raises(ValueError, match="response carries meaning"):
        list(problem_files.read_problems(source, SourceReport(path="")))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"message_id": "b", "parent_id": "a", "text": SEVEN, "role": "assistant"},
            "trees of messages",
        ),
        ({"question": ASKED, "mc1_targets": {"choices": ["7"], "labels": [1]}}, "mc1_targets"),
    ],
)
def test_rows_that_are_no_question_with_an_answer_are_refused(tmp_path, fields, reason):
    source = write_row(tmp_path, fields)
    with pytest.raises(ValueError, match=reason):
        list(problem_files.read_problems(source, SourceReport(path="")))


@pytest.mark.parametrize(
    "text",
    [f"[|Human|]{ASKED}\n[|AI|]{SEVEN}", f"### Human: {ASKED}### Assistant: {SEVEN}",
     f"<s>[INST] {ASKED} [/INST] {SEVEN}", f"<start_of_turn>user\n{ASKED}<end_of_turn>",
     f"USER: {ASKED} ASSISTANT: {SEVEN}",
     f"{ASKED}\n<extra_id_1>Assistant\n{SEVEN}\n<extra_id_1>User\nSure?",
     f"<extra_id_0>System\n\n<extra_id_1>User\n{ASKED}",
     f"<|system|>\nBe brief.</s>\n<|user|>\n{ASKED}</s>\n<|assistant|>",
     f"Be brief.\n<|user|>\n{ASKED}", f"<|start|>user<|message|>{ASKED}<|end|>",
     f"<|header_start|>user<|header_end|>\n\n{ASKED}<|eot|>",
     f"<|start_of_role|>user<|end_of_role|>{ASKED}", f"<<SYS>>Be brief.<</SYS>> {ASKED}",
     f"A chat between a user and an assistant. USER: {ASKED} ASSISTANT:",
     f"Below is an instruction.\n\n### Instruction:\n{ASKED}\n\n### Response:",
     f"### Instruction:\n{ASKED}\n\n### Response:\n",
     f"The conversation between human and AI assistant.\n[|Human|] {ASKED}\n[|AI|] "],
)  # fmt: skip
def test_a_rendered_conversation_is_no_question(tmp_path, text):
    source = write_row(tmp_path, {"input": text})
    problems, bad, _ = read_all(source)
    assert problems == []
    assert [row.reason.partition(":")[0] for row in bad] == ["a rendered conversation"] * 2


@pytest.mark.parametrize(
    "text",
    [
        "Why is `<|im_start|>user` in my prompt, and <|assistant|> too?", "What is <s>old</s>?",
        "What does USER: mean in a log?", "Write a heading ### Instruction: at the top.",
        "The user: is it you? And the assistant: who?", "### Response:\nis a heading of what?",
    ],
)  # fmt: skip
def test_a_question_about_a_chat_template_is_a_question(read, text):
    assert read({"prompt": text, "response": "So."})[0][0].question == text


ENDS = ["<|im_end|></s>", "</s>", "<|eot_id|>\n", "<end_of_turn>", "<|im_end|>", "<|endoftext|>"]


@pytest.mark.parametrize("end", ENDS)
def test_a_reply_with_the_end_mark_of_a_chat_template_is_quarantined(read, end):
    said = [*SAYS, {"role": "assistant", "content": f"So.{end}"}]
    for row in ({"prompt": "Why?", "response": f"So.{end}"}, {"messages": said},
                {"problem": "1+1?", "answer": "2", "solution": f"#### 2{end}"}):  # fmt: skip
        _, (bad,), _ = read(row)
        assert bad.reason.startswith("a rendered reply: ")
        assert end.strip() in bad.reason


@pytest.mark.parametrize("text", ["It is <s>old</s>", "Write </s> there.", "a < b > c"])
def test_a_reply_that_quotes_such_a_mark_is_imitated(read, text):
    assert read({"prompt": "Why?", "response": text})[0][0].solution == text


def test_a_flag_of_reasoning_is_none(read):
    assert len(read(ROW | {"reasoning": "off"})[0]) == 1


def test_usual_names_may_begin_with_a_capital(read):
    problems, _, report = read({"Question": "Why?", "Response": "So."})
    assert (problems[0].question, problems[0].solution, report.unused) == ("Why?", "So.", [])


def test_choices_may_be_json_text(read):
    problems, bad, _ = read(ROW | {"choices": '["3", "4"]', "answer": 1})
    assert (problems[0].question, problems[0].answer, bad) == ("2+2?\n(A) 3\n(B) 4", "B", [])
    row = ROW | {"choices": ["3", "4"]}
    _, bad, _ = read(row | {"answer": ""}, row)
    assert bad[0].reason.startswith("empty answer")


CARD = """---
configs:
- config_name: main
  data_files:
  - {split: train, path: part_a.jsonl}
  - {split: test, path: "part_b*"}
- config_name: elsewhere
  data_files: elsewhere/*
---
# Sums
"""


def test_a_folder_has_the_splits_that_its_card_says(tmp_path):
    for name, question in (("part_a", "1+1?"), ("part_b", "2+2?")):
        row = json.dumps({"question": question, "answer": 2})
        (tmp_path / f"{name}.jsonl").write_text(row)
    (tmp_path / "README.md").write_text(CARD)
    for source in (FileSource(path=str(tmp_path)), FileSource(path=str(tmp_path), name="main")):
        problems, _, report = read_all(source)
        assert {problem.question: problem.split for problem in problems} == {
            "1+1?": "train", "2+2?": "test",
        }  # fmt: skip
        assert report.rows == {"train": 1, "test": 1}
    with pytest.raises(ValueError, match="main"):
        read_all(FileSource(path=str(tmp_path), name="mian"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/rows.jsonl").write_text(json.dumps(ROW))
    with pytest.raises(ValueError, match="elsewhere"):
        read_all(FileSource(path=str(tmp_path)))


def test_a_configuration_of_files_that_have_none_is_refused(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW))
    with pytest.raises(ValueError, match="name"):
        read_all(FileSource(path=str(tmp_path / "rows.jsonl"), name="main"))


@pytest.mark.parametrize("form", ["saved", "json"])
def test_a_test_path_stands_in_place_of_the_test_split_beside_it(tmp_path, form):
    folder = write_folder(tmp_path / "rows", form)
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"question": "8+8?", "answer": 16}))
    problems, _, report = read_all(FileSource(path=str(folder), test_path=str(other)))
    everything, _, _ = read_all(FileSource(path=str(folder)))
    trained = {problem.question for problem in everything if problem.split == "train"}
    tested = {problem.question for problem in problems if problem.split == "test"}
    assert {problem.question for problem in problems if problem.split == "train"} == trained
    assert tested == {"8+8?"}
    assert report.unread_files


def test_a_local_test_path_beside_a_hub_id_is_a_file_to_watch(tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps(ROW))
    source = FileSource(path="openai/gsm8k", test_path=str(other))
    assert problem_files.list_local_files(source) == [other]


@pytest.mark.parametrize(
    "columns",
    [
        {"question": "question", "user": "answer"},
        {"user": "question", "solution": "answer", "assistant": "answer"},
    ],
)
def test_two_fields_that_say_the_same_are_refused(read, columns):
    with pytest.raises(ValueError, match="name one"):
        read(ROW, columns=columns)


@pytest.mark.parametrize("names", [("target", "expected_answer"), ("gold", "correct_answer")])
def test_two_gold_answers_that_differ_are_refused(read, names):
    first, second = names
    row = {"question": "2+2?", first: "4", second: "4.0"}
    assert len(read(row)[0]) == 1
    with pytest.raises(ValueError, match=r"row 201: \w+ carries meaning.*ignore: "):
        read(*[row] * 200, row | {second: "5"})
    assert len(read(row | {second: "5"}, ignore=[second])[0]) == 1
    for other in (None, float("nan"), "", "1e999999999"):
        assert len(read(row | {first: other, second: other}, row)[0]) > 0


def test_gold_answers_in_a_bare_and_a_worked_form_are_the_same(read):
    rows = [{"question": f"{n}?", "target": n, "expected_answer": f"So it is {n}.\n#### {n}"}
            for n in range(3)]  # fmt: skip
    assert len(read(*rows)[0]) == 3


@pytest.mark.parametrize("value", ["valid1", "heldout_2", "test_clean", "dev-other", "held_out"])
def test_a_name_with_the_word_of_a_split_says_test(read, value):
    for name in ("split", "subset"):
        with pytest.raises(ValueError, match=f"{name} carries meaning"):
            read(ROW | {name: value})
    text = "A set of tests that people write to test what they dev."
    for value in ("train_clean", "latest", "developer", text):
        assert len(read(ROW | {"set": value})[0]) == 1


@pytest.mark.parametrize(
    "column",
    [
        {"Split": "test"}, {"subset": "validation"}, {"phase": "test"}, {"is_test": True},
        {"is_test": 1}, {"is_test": "True"}, {"isTest": "yes"}, {"is_train": False},
        {"is_train": "0"}, {"is_eval": True}, {"is_validation": 1}, {"holdout": True},
        {"held_out": "test"}, {"domain": "algebra_test"},
    ],
)  # fmt: skip
def test_a_column_that_says_test_is_read_or_refused(read, column):
    with pytest.raises(ValueError, match=r"carries meaning.*columns: \{split"):
        read(*[ROW] * 200, ROW | column)
    (name,) = column
    training = ROW | {name: "algebra_train" if name == "domain" else "train"}
    assert len(read(training)[0]) == 1
    problems, _, _ = read(
        training, ROW | column,
        columns={"question": "question", "answer": "answer", "split": name},
    )  # fmt: skip
    if column != {"subset": "validation"}:  # which is neither train nor test
        assert [problem.split for problem in problems] == ["train", "test"]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("is_test", 0), ("is_test", "False"), ("is_train", True), ("is_train", "1"),
        ("holdout", "no"), ("phase", "2"), ("contest", 1), ("is_tested", "by hand"),
        ("extra_info", {"split": "train", "index": 1}), ("extra_info", {"index": "test"}),
        ("metadata", '{"split": "train"}'), ("metadata", "{a test}"),
    ],
)  # fmt: skip
def test_marks_of_training_rows_are_no_reason_to_refuse_them(read, column, value):
    problems, bad, report = read(ROW | {column: value})
    assert (len(problems), bad, report.unused) == (1, [], [column])


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("extra_info", {"index": 1, "split": "test"}, "extra_info.split"),
        ("metadata", {"is_test": 1}, "metadata.is_test"),
        ("metadata", '{"split": "validation"}', "metadata.split"),
        ("reward_model", {"ground_truth": "4", "split": "test"}, "reward_model.split"),
    ],
)
def test_a_split_in_an_object_is_refused_or_read(read, name, value, path):
    row = {"question": "2+2?", "answer": "4"} | {name: value}
    if name == "reward_model":
        del row["answer"]
    with pytest.raises(ValueError, match=rf"{path} carries meaning.*ignore: \[{path}\]"):
        read(row)
    for ignored in (path, name) if name != "reward_model" else (path,):
        assert len(read(row, ignore=[ignored])[0]) == 1


def test_the_split_of_a_test_file_of_verl_may_say_so(tmp_path):
    for name in ("train", "test"):
        row = {"question": f"{name}?", "answer": 1, "extra_info": {"split": name}}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row))
    problems, _, _ = read_all(FileSource(path=str(tmp_path)))
    assert [problem.split for problem in problems] == ["train", "test"]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("problem_is_valid", "No"), ("solution_is_valid", "Incomplete"), ("is_valid", False),
        ("is_valid", "0"), ("is_valid", 0.0), ("valid", False), ("deleted", True),
        ("is_deleted", 1),
        ("removed", "2024-05-01"), ("invalid", "twice"),
    ],
)  # fmt: skip
def test_a_row_that_the_file_marks_as_invalid_is_left_out(read, column, value):
    problems, (bad,), _ = read(ROW, ROW | {column: value})
    assert (len(problems), bad.line) == (1, 2)
    assert bad.reason == (
        f"marked as invalid: '{column}' is {value!r}; such rows are kept as ignore: [{column}]"
    )
    assert len(read(ROW, ROW | {column: value}, ignore=[column])[0]) == 2
    columns = {"question": "question", "answer": column}  # the answer itself may be a `No`
    as_answer = read({"question": "2+2?", column: value}, columns=columns)
    assert "marked" not in str(as_answer[1])
    catalogue.screen_rows([*problems, bad]).check_share(0.0)
    with pytest.raises(ValueError, match=r"of 1 all are left out \(1 marked as invalid\)"):
        catalogue.screen_rows([bad]).check_share(0.0)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("problem_is_valid", "Yes"), ("problem_is_valid", None), ("is_valid", True), ("valid", 3),
        ("deleted", False), ("deleted", "no"), ("deleted", ""), ("removed", ["a"]),
        ("removed", "2"),
        ("deleted", "f"), ("deleted", "None"), ("invalid", "[]"), ("is_valid", "Valid"),
        ("is_valid", "t"), ("problem_is_valid", "Complete"),
        ("validity", "No"), ("valid", "since 2020"),
    ],
)  # fmt: skip
def test_a_row_that_is_not_marked_as_invalid_is_read(read, column, value):
    assert len(read(ROW, ROW | {column: value})[0]) == 2


EXCHANGE: dict[str, Any] = {"prompt": "2+2?", "response": "Four."}


@pytest.mark.parametrize("row", [ROW | {"solution": "2+2=4\n#### 4"}, EXCHANGE])
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("verified", True, False), ("is_correct", 1, 0), ("correctness", 1.0, 0.0),
        ("verify_result", "pass", "fail"), ("correct", True, "False"),
        ("judge_correct", "yes", "no"), ("is_verified", "true", "unverified"),
        ("is_wrong", False, True), ("answer_is_correct", "Correct", "Incorrect"),
    ],
)  # fmt: skip
def test_a_demonstration_that_its_row_says_is_wrong_is_left_out(read, row, name, right, wrong):
    problems, (bad,), report = read(row | {name: right}, row | {name: wrong}, row)
    assert [(problem.line, problem.solution is not None) for problem in problems] == [
        (1, True), (3, True),
    ]  # fmt: skip
    assert (bad.line, bad.reason) == (
        2, f"marked as invalid: '{name}' is {wrong!r}; such rows are imitated as ignore: [{name}]"
    )  # fmt: skip
    assert name not in report.unused
    assert len(read(row, row | {name: wrong}, ignore=[name])[0]) == 2


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        ("prediction", "answer_is_correct"), ("student_answer", "student_is_correct"),
        ("model_answer", "verified"), ("pred", "gpt_is_correct"), ("gpt_reply", "gpt_is_correct"),
    ],
)  # fmt: skip
def test_a_verdict_is_of_the_answer_beside_it_if_the_solution_does_not_state_that(read, name, mark):
    row = ROW | {"solution": "2+2=4\n#### 4", mark: False}
    problems, bad, report = read(row | {name: "5"})
    assert (len(problems), bad, report.unused) == (1, [], [mark, name])
    problems, (bad,), _ = read(row | {name: "4"}, row | {mark: True, name: "5"})
    assert ([problem.line for problem in problems], bad.line) == ([2], 1)


def test_the_predicted_answer_of_open_math_instruct_is_that_of_its_solution(read):
    row = {"question": "2+2?", "expected_answer": "4", "is_correct": True,
           "generated_solution": "so \\boxed{\\frac{8}{2}}", "predicted_answer": "4.0"}  # fmt: skip
    problems, (bad,), _ = read(row, row | {"is_correct": False})
    assert ([problem.line for problem in problems], bad.line) == ([1], 2)


def test_what_is_correct_beside_another_prediction_is_refused(read):
    with pytest.raises(ValueError, match="row 1: correct carries meaning"):
        read(ROW | {"solution": "2+2=4\n#### 4", "prediction": "5", "correct": False})


@pytest.mark.parametrize(
    "change", [{"correct": "f"}, {"correct": "no"}, {"correct": 0, "choices": ["4", "5"]}]
)
def test_which_answer_is_correct_is_no_verdict(read, change):
    with pytest.raises(ValueError, match="row 1: correct carries meaning"):
        read(ROW | {"solution": "2+2=4\n#### 4"} | change)


def test_what_is_right_by_degrees_or_of_an_answer_that_is_not_read_is_refused(read):
    with pytest.raises(ValueError, match="row 3: correctness carries meaning"):
        read(*[EXCHANGE | {"correctness": level} for level in (1, 0, 4)])
    asked = {"prompt": [{"role": "user", "content": "2+2?"}], "answer": "4"}
    as_text = {"messages": json.dumps(asked["prompt"]), "answer": "4"}
    for row in (ROW, asked, as_text):
        with pytest.raises(ValueError, match="row 2: is_correct carries meaning"):
            read(row, row | {"is_correct": False})
        problems, (bad,), _ = read(row | {"verified": False}, row | {"verified": True})
        assert ([problem.line for problem in problems], bad.line) == ([2], 1)
    problems, bad, report = read(EXCHANGE | {"verify_result": "timeout", "pass_rate": 0.0})
    assert (len(problems), bad, report.unused) == (1, [], ["verify_result", "pass_rate"])


@pytest.mark.parametrize(
    ("column", "value", "hint"),
    [
        ("tolerance", 0.01, "compared exactly"), ("error", "1e-3", "compared exactly"),
        ("rtol", "0.05", "compared exactly"),
    ],
)  # fmt: skip
def test_what_an_answer_may_differ_by_is_refused(read, column, value, hint):
    with pytest.raises(ValueError, match=f"{column} carries meaning.*{hint}"):
        read(ROW, ROW | {column: value})
    for nothing in (None, 0, "0", False, ""):
        assert len(read(ROW, ROW | {column: nothing})[0]) == 2
    columns = {"question": "question", "answer": f"{{answer}} {{{column}}}"}
    assert read(ROW | {column: value}, columns=columns)[0][0].answer == f"4 {value}"


@pytest.mark.parametrize("unit", [None, "", "none", False, 0, "0", "-", "N/A", "dimensionless"])
def test_a_unit_is_a_part_of_the_gold_answer(read, unit):
    row = ROW | {"answer": ["7"]}
    problems, bad, report = read(
        row | {"unit": unit}, row | {"unit": " m/s "}, row | {"answer": "7 m/s", "unit": "m/s"}
    )
    assert [problem.answer for problem in problems] == ["7", "7 m/s", "7 m/s"]
    assert (bad, report.columns["unit"], report.unused) == ([], "unit", [])
    assert not answer_checker.answers_match("7 km", problems[1].answer or "")
    rows = [row | {"unit": None}] * 200 + [row | {"unit": "m"}]  # of which the sample sees none
    assert read(*rows)[0][-1].answer == "7 m"


@pytest.mark.parametrize(
    "unit",
    ["miles per hour", "$\\mathrm{~m} / \\mathrm{s}$", "cubic feet per second", "kg m / s^2"],
)
def test_a_unit_may_have_several_words(read, unit):
    problems, bad, _ = read(ROW | {"unit": unit})
    assert (problems[0].answer, bad) == (f"4 {unit}", [])
    assert answer_checker.answers_match(f"4 {unit}", f"4 {unit}")


def test_a_word_has_no_unit(read):
    rows = [ROW | {"answer": answer, "unit": "years"} for answer in ("yes", "4", "\\pi")]
    problems, bad, _ = read(*rows)
    assert ([problem.answer for problem in problems], bad) == (
        ["yes", "4 years", "\\pi years"], [],
    )  # fmt: skip


@pytest.mark.parametrize("unit", ["3", "Unit 3", "Unit 3: Fractions", "Fractions and decimals"])
def test_a_number_or_a_heading_is_no_unit(read, unit):
    problems, (bad,), _ = read(ROW | {"unit": unit})
    assert (problems, bad.reason.partition(":")[0]) == ([], "no unit")


def test_the_unit_of_a_textbook_is_no_unit_of_an_answer(read):
    _, (bad,), _ = read(ROW | {"unit": "Unit 3: Fractions"}, *[ROW | {"unit": None}] * 2)
    assert bad.reason.startswith("no unit: ")
    assert bad.reason.endswith("ignore: [unit]")
    with pytest.raises(ValueError, match=r"row 1: unit carries meaning.*\{unit\}"):
        read(ROW | {"unit": 3})
    columns = {"question": "question", "answer": "answer"}
    with pytest.raises(ValueError, match=r"row 1: unit carries meaning.*unit: unit"):
        read(ROW | {"unit": "m"}, columns=columns)


@pytest.mark.parametrize("name", ["image_1", "image7", "image_2_url"])
def test_a_numbered_image_is_not_dropped(read, name):
    assert len(read(ROW | {name: None})[0]) == 1
    with pytest.raises(ValueError, match=f"row 1: {name} carries meaning"):
        read(ROW | {name: "a.png"})


def test_a_split_beside_named_columns_is_not_dropped(read):
    columns = {"question": "question", "answer": "answer"}
    with pytest.raises(ValueError, match="split carries meaning"):
        read(ROW | {"split": "test"}, columns=columns)
    problems, _, _ = read(ROW | {"split": "test"}, columns=columns | {"split": "split"})
    assert problems[0].split == "test"


def test_a_test_file_may_say_again_that_it_is_one(tmp_path):
    for name in ("train", "test"):
        row = {"question": f"{name}?", "answer": 1, "Split": name}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row))
    problems, _, _ = read_all(FileSource(path=str(tmp_path)))
    assert [problem.split for problem in problems] == ["train", "test"]


@pytest.mark.parametrize(
    "name", ["systemPrompt", "system_instruction", "sys_msg", "thought", "premises", "db_schema"]
)
def test_a_system_message_or_context_by_another_name_is_refused(read, name):
    with pytest.raises(ValueError, match=f"{name} carries meaning"):
        read({"prompt": "Why?", "response": "So.", name: "Be brief."})


@pytest.mark.parametrize(
    ("answers", "letters"),
    [
        ((2, 3), None), (("0", "2"), None),  # all are texts of choices; one is none
        ((0, 2), ["A", "C"]), (("2", "3"), ["B", "C"]), ((4, 3), None),
    ],
)  # fmt: skip
def test_a_number_is_an_index_or_a_text_of_choices_and_never_guessed(read, answers, letters):
    rows = [{"question": f"{answer}?", "choices": list("1234"), "answer": answer}
            for answer in answers]  # fmt: skip
    if letters is None:
        with pytest.raises(ValueError, match="expected letters of choices"):
            read(*rows)
    else:
        assert [problem.answer for problem in read(*rows)[0]] == letters


def test_numbers_that_are_labels_of_choices_are_no_indexes(read):
    choices = {"text": ["3", "1"], "label": ["1", "2"]}
    assert read(ROW | {"choices": choices, "answer": "1"})[0][0].answer == "A"


@pytest.mark.parametrize(
    ("choices", "golds"),
    [
        (["red", "green", "blue"], ["b", "(b)", "B.", "B. green", "(B) green", 1, 1.0]),
        (["(a) red", "(b) green", "(c) blue"], ["b", "B", "(b) green", "green"]),
        (["A. red", "B. green", "C. blue"], ["B. green", "b", "B) green"]),
        (["2.0", "1.0", "0.0"], [1.0, "1.0"]),
        ([10, 20, 30], [20, 20.0, "20"]),
        (["the", "a", "an"], ["a", "B"]),
        (["none", "none", "all"], ["B. none", "b"]),
    ],
)
def test_a_choice_is_told_by_its_letter_its_place_or_its_text(read, choices, golds):
    problems, bad, _ = read(*[{"question": f"{n}?", "choices": choices, "answer": gold}
                              for n, gold in enumerate(golds)])  # fmt: skip
    assert ([problem.answer for problem in problems], bad) == (["B"] * len(golds), [])


@pytest.mark.parametrize("gold", ["A. green", "(c) red", "d", 3, 3.0, 0.5, "B. gree"])
def test_a_gold_answer_that_is_no_choice_is_not_taken_for_one(read, gold):
    row = {"question": "Which?", "choices": ["red", "green", "blue"], "answer": gold}
    _, (bad,), _ = read(row)
    assert bad.reason.startswith("no choice: expected the letter, index (from 0) or text")


VITAMINS = {"question": "Which is it?", "choices": ["D", "C", "A", "K"]}


@pytest.mark.parametrize(
    ("other", "letter"),
    [
        ({"choices": ["Oslo", "Rome"], "answer": "Rome"}, "C"),  # gold answers are texts
        ({"choices": ["Oslo", "Rome"], "answer": "B"}, "A"),  # they are letters
        ({"choices": ["C", "AB"], "answer": "AB"}, "C"),
    ],
)
def test_a_gold_answer_that_is_a_letter_and_a_text_is_as_the_others_are(read, other, letter):
    problems, bad, _ = read(VITAMINS | {"answer": "A"}, ROW | other)
    assert ([problem.answer for problem in problems], bad) == ([letter, "B"], [])


def test_a_gold_answer_that_may_be_a_letter_or_a_text_is_not_guessed(read):
    mixed = [{"choices": ["Oslo", "Rome"], "answer": answer} for answer in ("B", "Rome")]
    problems, bad, _ = read(VITAMINS | {"answer": "A"}, *(ROW | row for row in mixed))
    assert [problem.answer for problem in problems] == ["B", "B"]
    assert [(row.line, row.reason.partition(":")[0]) for row in bad] == [(1, "ambiguous choice")]
    problems, bad, _ = read(VITAMINS | {"choices": ["A", "C"], "answer": "A"})
    assert ([problem.answer for problem in problems], bad) == (["A"], [])
    labelled = {"label": ["A", "B"], "text": ["B", "C"]}
    assert read(VITAMINS | {"choices": labelled, "answer": "B"})[0][0].answer == "B"


def sums(count: int) -> list[dict[str, Any]]:
    return [
        {"question": f"{n}+1?", "answer": str(n + 1), "solution": f"#### {n + 1}"}
        for n in range(count)
    ]


def test_one_list_among_solutions_drops_none_of_the_others(read):
    rows = sums(5)
    problems, bad, _ = read(*rows, rows[0] | {"question": "0+1 = ?", "solution": ["#### 1"]})
    assert [problem.solution for problem in problems] == [
        *(row["solution"] for row in rows), "#### 1",
    ]  # fmt: skip
    assert bad == []


@pytest.mark.parametrize("name", ["incorrect", "wrong"])
def test_a_wrong_answer_beside_the_right_is_no_verdict(read, name):
    row = ROW | {"solution": "2+2=4\n#### 4"}
    rows = [row | {name: value, "id": str(value)} for value in ("1", "yes", 0, False, "true")]
    problems, (bad,), _ = read(*rows)
    assert ([problem.line for problem in problems], bad.line) == ([1, 2, 3, 4], 5)


@pytest.mark.parametrize("extra", [{"targets": ["4", "four"]}, {"steps": 3}])
def test_names_of_lists_of_answers_or_steps_stand_for_other_things_too(read, extra):
    problems, bad, report = read(ROW | extra)
    assert (len(problems), bad, report.unused) == (1, [], [*extra])


def test_the_only_target_of_a_row_of_big_bench_is_imitated(read):
    problems, bad, _ = read({"inputs": "2+2?", "targets": ["It is 4."]})
    assert ([problem.solution for problem in problems], bad) == (["It is 4."], [])


def test_each_of_several_solutions_is_imitated_if_it_states_an_answer(read):
    row = {"id": "p", "question": "1+2?", "final_answer": ["3"], "unit": "m",
           "solution": ["A #### 3", "so \\boxed{3}"]}  # fmt: skip
    problems, bad, report = read(row, row | {"id": "q", "question": "?"}, limit=1)
    assert [(problem.id, problem.line, problem.solution) for problem in problems] == [
        ("p", 1, "A #### 3"), ("p-solution-2", 1, "so \\boxed{3}"),
    ]  # fmt: skip
    assert {problem.answer for problem in problems} == {"3 m"}
    assert (bad, report.rows) == ([], {"unsplit": 1})
    assert catalogue.screen_rows(problems).problems == problems
    for empty in (None, ""):
        problems, bad, _ = read(row | {"solution": ["A #### 3", empty]}, row)
        assert ([problem.solution for problem in problems[:2]], bad) == (["A #### 3"] * 2, [])
    problems, bad, _ = read(row | {"split": "test"}, row | {"id": "p-2", "question": "?"})
    assert [problem.id for problem in problems] == ["p", "p-2", "p-2-solution-2"]
    assert catalogue.screen_rows(problems).bad == bad == []


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("solution", ["2 + 1", "#### 3", "Done."]), ("solution", ["A #### 3", "B"]),
        ("response", ["A #### 3", "B #### 3"]),
    ],
)  # fmt: skip
def test_of_several_solutions_none_is_dropped_unseen(read, texts, name):
    row = {"question": "1+2?", name: texts}
    if name == "solution":
        row["answer"] = "3"
    alone = row | {name: texts[:1]}
    problems, (bad,), _ = read(alone, alone, row | {name: texts[0]}, row)
    assert [problem.solution for problem in problems] == texts[:1] * 3
    assert bad.line == 4
    assert bad.reason.startswith(f"several texts: expected one solution or reply in '{name}'")
    assert bad.reason.endswith(f"name its place under columns, as {name}.0")
    asks, says = ("question", "solution") if name == "solution" else ("user", "assistant")
    columns = {asks: "question", says: f"{name}.1"}
    if name == "solution":
        columns["answer"] = "answer"
    assert read(row, columns=columns)[0][0].solution == texts[1]


def test_lists_of_one_solution_are_read_as_olympiadbench_has_them(read):
    rows = [{"question": row["question"], "solution": [row["solution"]],
             "final_answer": [row["answer"]]} for row in sums(3)]  # fmt: skip
    problems, bad, report = read(*rows)
    assert [(row.answer, row.solution) for row in problems] == [
        (str(n + 1), f"#### {n + 1}") for n in range(3)
    ]
    assert (bad, report.columns["solution"]) == ([], "solution")


@pytest.mark.parametrize("has_solutions", [True, False])
def test_one_odd_answer_spoils_its_row_alone(read, has_solutions):
    rows = sums(5)
    if not has_solutions:
        for row in rows:
            del row["solution"]
    problems, (bad,), _ = read(*rows, rows[0] | {"question": "?", "answer": {"value": 5}})
    assert [problem.answer for problem in problems] == [row["answer"] for row in rows]
    assert (bad.line, bad.reason.partition(":")[0]) == (6, "wrong type")
    with pytest.raises(ValueError, match="answer"):  # most are objects: which key is it?
        read(*rows[:2], *[rows[2] | {"answer": {"value": 5}}] * 2)


@pytest.mark.parametrize("labels", [(1, -1), (1, 5), (4, 2), ("good", "bad"), (0.1, 0.9)])
def test_labels_of_completions_are_no_gold_answers(read, labels):
    rows = [{"prompt": f"{n}+20?", "completion": f"It is {n + 20}.", "label": labels[n % 2]}
            for n in range(10, 20)]  # fmt: skip
    said = [
        {"messages": [{"role": "user", "content": row["prompt"]},
                      {"role": "assistant", "content": row["completion"]}], "label": row["label"]}
        for row in rows
    ]  # fmt: skip
    for content in (rows, said):
        with pytest.raises(ValueError, match=r"labelled good or bad.*`pairs`.*preset kto"):
            read(*content)
    columns = {"question": "prompt", "answer": "label", "solution": "completion"}
    assert len(read(*rows, columns=columns)[0]) == 10


def test_a_label_that_the_replies_say_or_without_a_reply_is_a_gold_answer(read):
    rows = [{"input": f"{n}+20?", "output": f"It is {n + 20}.", "label": n + 20} for n in range(9)]
    problems, _, _ = read(*rows, {"input": "1+1?", "output": "It is two.", "label": 2})
    assert [problem.answer for problem in problems] == [*map(str, range(20, 29)), "2"]
    alone = [{"input": f"{n}?", "label": n % 2} for n in range(4)]
    assert [problem.answer for problem in read(*alone)[0]] == ["0", "1", "0", "1"]
    chosen = [row | {"output": "So it is.", "choices": ["b", "c", "d"], "label": n % 3}
              for n, row in enumerate(alone)]  # fmt: skip
    assert [problem.answer for problem in read(*chosen)[0]] == ["A", "B", "C", "A"]


def test_the_beginning_of_a_reply_is_not_lost_before_the_rest_of_it(read):
    prompt = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because"}]
    problems, bad, _ = read({"prompt": prompt, "completion": " of rain."})
    assert problems == []
    assert bad[0].reason.startswith("two replies: ")


SHAREGPT = {"from": ["human", "gpt", "human", "gpt"], "value": ["Hi", "Hello!", "2+2?", "4."]}


@pytest.mark.parametrize("form", ["jsonl", "parquet", "saved"])
def test_messages_may_be_an_object_of_lists(tmp_path, form):
    rows = [{"conversations": SHAREGPT, "id": "a"}]
    path = tmp_path / f"mine.{form}"
    if form == "jsonl":
        path.write_text(json.dumps(rows[0]) + "\n")
    elif form == "parquet":
        datasets.Dataset.from_list(rows).to_parquet(path)
    else:
        datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(path)
    (problem,), bad, _ = read_all(FileSource(path=str(path)))
    assert bad == []
    assert problem.turns == (Turn("user", "Hi"), Turn("assistant", "Hello!"), Turn("user", "2+2?"))
    assert problem.solution == "4."


def test_an_object_of_lists_of_other_lengths_is_no_messages(read):
    short = {"role": ["user", "assistant"], "content": ["Hi"]}
    whole = {"role": ["user", "assistant"], "content": ["Hi", "Hello!"]}
    (problem,), (bad,), _ = read({"messages": whole}, {"messages": short})
    assert problem.solution == "Hello!"
    assert bad.line == 2
    assert bad.reason.startswith("no message: expected a role")


def test_several_accepted_answers_are_refused_with_what_to_write(read):
    rows = [{"question": f"{i}?", "answer": ["Paris", "Lutetia"]} for i in range(2)]
    _, bad, _ = read(*rows)
    for row in bad:
        assert row.reason == (
            "wrong type: 'answer' should be a single text or number, is ['Paris', 'Lutetia']: "
            "where any of them is right, write `a or b`; else name one, as answer.0"
        )
    assert len(bad) == 2
    columns = {"question": "question", "answer": "answer.0"}
    assert [problem.answer for problem in read(*rows, columns=columns)[0]] == ["Paris", "Paris"]
    columns["answer"] = "{answer.0} or {answer.1}"
    (problem, _), _, _ = read(*rows, columns=columns)
    assert problem.answer is not None
    for answer in ("Paris", "Lutetia"):
        assert answer_checker.is_correct(f"The answer is {answer}.", problem.answer)
    assert not answer_checker.is_correct("The answer is Lyon.", problem.answer)
