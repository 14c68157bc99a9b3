"""One file of each public format, against what a person reads in it, or says of it.

The rows are made after the documents and data sets of TRL, axolotl, LLaMA-Factory, verl, OpenRLHF,
open-instruct and others: six problems of adding the books on a shelf, written down in each form.
"""

import json
from pathlib import Path
from typing import Any

import pydantic
import pytest

from stages.config import PRESETS_PATH, read_yaml
from stages.records.preferences import RawLabelled, RawPreference
from stages.records.problems import BadRow, Problem, Turn
from stages.rewards import answer_checker
from stages.sources import preference_files, problem_files, step_files
from stages.sources.preference_files import PairColumns
from stages.sources.problem_files import FileSource, SourceReport

FORMATS = Path(__file__).parents[4] / "shared/data/formats"
pytestmark = pytest.mark.skipif(not FORMATS.is_dir(), reason="no ../shared/data/formats")

NUMBERS = [(3, 2), (10, 7), (17, 12), (24, 17), (31, 22), (38, 4)]
SUMS = [str(a + b) for a, b in NUMBERS]
LETTERS = ["C", "D", "A", "D", "D", "B"]
SYSTEM = [Turn("system", "You count books.")]


def ask(number: int, *, short: bool = False) -> str:
    a, b = NUMBERS[number]
    what = "How many?" if short else "How many books are on it?"
    return f"A shelf holds {a} red and {b} blue books. {what} (shelf {number})"


LONG, SHORT = [ask(i) for i in range(6)], [ask(i, short=True) for i in range(6)]
REPLIES = [f"There are {total} books." for total in SUMS]
WORKINGS = [f"{a} + {b} = {a + b}" for a, b in NUMBERS]
COUNT = [question if i % 2 == 0 else f"Count the books.\n{question}"
         for i, question in enumerate(LONG)]  # fmt: skip


def read(name: str, **changes: Any) -> list[Problem]:
    source = FileSource.model_validate({"path": str(FORMATS / name)} | changes)
    rows = list(problem_files.read_problems(source, SourceReport(path=name)))
    bad = [row for row in rows if isinstance(row, BadRow)]
    assert not bad, bad[0].reason
    return [row for row in rows if isinstance(row, Problem)]


CHATS: dict[str, tuple[list[str], list[Turn]]] = {
    **dict.fromkeys(("bare_list_of_messages.jsonl", "sharegpt_capital.jsonl",
                     "sharegpt_user_assistant.jsonl", "trl_prompt_completion_chat.jsonl",
                     "trl_prompt_completion_text.jsonl", "trl_prompt_only_chat.jsonl"), (LONG, [])),
    **dict.fromkeys(("empty_system.jsonl", "json_string_messages.jsonl"), (SHORT, [])),
    **dict.fromkeys(("anthropic_style.jsonl", "openai_system.jsonl", "openorca.jsonl"),
                    (LONG, SYSTEM)),
    "alpaca.json": (COUNT, []),
    "openai_developer.jsonl": (LONG, [Turn("system", "Be brief.")]),
    "sharegpt_starts_with_gpt.jsonl": (LONG, [Turn("assistant", "Hello, what shall I count?")]),
}  # fmt: skip


@pytest.mark.parametrize("name", CHATS)
def test_a_conversation_is_a_prompt_and_perhaps_a_reply_to_imitate(name):
    questions, before = CHATS[name]
    for problem, question, reply in zip(read(name), questions, REPLIES, strict=True):
        assert problem.turns == (*before, Turn("user", question))
        expected = None if name == "trl_prompt_only_chat.jsonl" else reply
        assert (problem.solution, problem.answer) == (expected, None)


GSM8K = [f"{working}\n#### {total}" for working, total in zip(WORKINGS, SUMS, strict=True)]
PROBLEMS: dict[str, tuple[list[str], list[str] | None]] = {
    **dict.fromkeys(("array.json", "array_named.jsonl"), (SHORT, GSM8K)),
    **dict.fromkeys(("big_math.jsonl", "openrlhf_input_label.jsonl", "prime_intellect.jsonl",
                     "problem_answer.jsonl", "question_answer_no_solution.jsonl"), (LONG, None)),
    "math.jsonl": (LONG, [f"{working}. The answer is $\\boxed{{{total}}}$."
                          for working, total in zip(WORKINGS, SUMS, strict=True)]),
    "numina.jsonl": (LONG, [f"{working} so $\\boxed{{{total}}}$"
                            for working, total in zip(WORKINGS, SUMS, strict=True)]),
}  # fmt: skip
MESSAGES = (
    "open_instruct_rlvr.jsonl", "open_instruct_rlvr_list.jsonl", "orz_eval.json",
    "verl_rows.jsonl",
)  # fmt: skip


@pytest.mark.parametrize("name", [*PROBLEMS, *MESSAGES])
def test_a_problem_has_its_question_and_its_gold_answer(name):
    questions, solutions = PROBLEMS.get(name, (LONG, None))
    problems = read(name)
    assert [problem.question for problem in problems] == questions
    assert [answer_checker.read_gold(str(problem.answer)) for problem in problems] == SUMS
    assert [problem.solution for problem in problems] == (solutions or [None] * 6)
    assert [problem.turns is not None for problem in problems] == [name in MESSAGES] * 6


CHOICES = ("aqua.jsonl", "commonsenseqa_raw.jsonl", "mmlu.jsonl")
GOLDS: dict[str, tuple[list[str], str]] = {
    **dict.fromkeys(CHOICES, (LETTERS, f"{LONG[0]}\n(A) 6\n(B) 4\n(C) 5\n(D) 7")),
    "letter_in_question.jsonl": (LETTERS, f"{LONG[0]}\nA) 6\nB) 4\nC) 5\nD) 7"),
    "big_integer_and_half.jsonl": (["9007199254740993", "0.5", "2", "3", "4", "5"], ""),
    "yes_no.jsonl": (["yes"] * 6, ""),
}


@pytest.mark.parametrize("name", GOLDS)
def test_a_gold_answer_is_a_letter_a_word_or_an_exact_number(name):
    golds, question = GOLDS[name]
    problems = read(name)
    assert [problem.answer for problem in problems] == golds
    assert question in ("", problems[0].question)


def test_a_solution_that_states_no_answer_is_completed_by_a_template():
    columns = {"question": "question", "answer": "answer", "solution": "{cot}\n#### {answer}"}
    problems = read("solution_without_statement.jsonl", columns=columns)
    assert [problem.solution for problem in problems] == GSM8K


PAIRS = [
    "axolotl_chatml_intel.jsonl", "dpo_chat_explicit.jsonl", "dpo_chat_implicit.jsonl",
    "dpo_text.jsonl", "helpsteer2_preference.jsonl", "hh_rlhf.jsonl", "hh_rlhf_one_newline.jsonl",
    "lf_dpo_alpaca.json", "old_lf_ranking.json", "prompt_text_chosen_message_lists.jsonl",
    "rm_static.jsonl", "shp.jsonl", "ultrafeedback_binarized.jsonl", "ultrafeedback_raw.jsonl",
]  # fmt: skip


def read_preferences(name: str, *ignore: str) -> list[RawPreference | RawLabelled]:
    rows = list(preference_files.read_preferences(FORMATS / name, PairColumns(), ignore))
    assert not [row for row in rows if isinstance(row, BadRow)]
    return [row for row in rows if not isinstance(row, BadRow)]


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_has_its_prompt_and_the_better_answer_first(name):
    before = SYSTEM if name.startswith("axolotl") else []
    # Of SHP every other label contradicts its scores.
    ignore = {"shp.jsonl": ["labels"], "helpsteer2_preference.jsonl": ["preference_statement"]}
    for number, pair in enumerate(read_preferences(name, *ignore.get(name, ()))):
        assert isinstance(pair, RawPreference)
        assert pair.turns in (
            (*before, Turn("user", LONG[number])), (*before, Turn("user", SHORT[number])),
        )  # fmt: skip
        wrong = f"There are {sum(NUMBERS[number]) + 1} books."
        assert (pair.chosen.strip(), pair.rejected.strip()) == (REPLIES[number], wrong)
        assert pair.probability == 1.0


def test_the_prompt_of_two_texts_is_their_common_beginning():
    first = read_preferences("dpo_text_implicit.jsonl")[0]
    assert isinstance(first, RawPreference)
    assert first.plain_prompt == f"{LONG[0]} There are"
    assert (first.chosen, first.rejected) == (" 5 books.", " 6 books.")


def test_ratings_of_one_prompt_are_compared_when_the_others_may_be_dropped():
    others = ("correctness", "coherence", "complexity", "verbosity")
    pairs = read_preferences("helpsteer2.jsonl", *others)
    assert [pair.chosen for pair in pairs if isinstance(pair, RawPreference)] == REPLIES


def test_labelled_completions_are_no_pairs():
    rows = read_preferences("kto.jsonl")
    assert all(isinstance(row, RawLabelled) for row in rows)
    assert [row.desirable for row in rows if isinstance(row, RawLabelled)] == [
        row.completion == REPLIES[i] for i, row in enumerate(rows) if isinstance(row, RawLabelled)
    ]
    assert {row.desirable for row in rows if isinstance(row, RawLabelled)} == {True, False}


STEPS = {
    "math_shepherd.jsonl": ("math_shepherd", ["Step 1: {}", "Step 2: The answer is: {}"]),
    "math_shepherd_trl.jsonl": ("stepwise", ["Step 1: {}", "Step 2: The answer is: {}"]),
    "prm800k.jsonl": ("prm800k", ["{}", "The total is {}.\n\n# Answer\n\n{}"]),
    "processbench.jsonl": ("processbench", ["{}", "The answer is {}."]),
    "trl_stepwise.jsonl": ("stepwise", ["{}", "#### {}"]),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_have_their_labels(name):
    preset, (first, last) = STEPS[name]
    root = Path(__file__).parents[3]
    content = read_yaml(root / PRESETS_PATH)[preset]["format"]
    form = pydantic.TypeAdapter(step_files.Format).validate_python(content)
    for number, row in enumerate(step_files.read_solutions(FORMATS / name, form)):
        assert not isinstance(row, BadRow)
        total = SUMS[number]
        assert row[0].question == LONG[number]
        assert row[0].steps == [first.format(WORKINGS[number]), last.format(total, total)]
        assert row[0].labels == [1.0, 1.0]


REFUSED = {
    **dict.fromkeys(("axolotl_chatml_intel.jsonl", "shp.jsonl"), "`pairs`"),
    **dict.fromkeys(("math_shepherd.jsonl", "prm800k.jsonl", "processbench.jsonl",
                     "trl_stepwise.jsonl"), "`steps`"),
    **dict.fromkeys(("old_lf_ranking.json", "ultrafeedback_raw.jsonl"), "several answers"),
    "helpsteer2.jsonl": "helpfulness, correctness", "humaneval.jsonl": "code", "kto.jsonl": "kto",
    "oasst_tree.jsonl": "trees", "trl_text.jsonl": "assistant: text",
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_right_is_refused(name):
    with pytest.raises(ValueError, match=REFUSED[name]):
        read(name)


@pytest.mark.parametrize("name", STEPS)
def test_labelled_steps_that_are_named_as_pairs_or_problems_belong_to_a_row_of_steps(name):
    preset, _ = STEPS[name]
    for read_rows in (read, read_preferences):
        with pytest.raises(ValueError, match=rf"row of `steps`, as .*preset: {preset}, "):
            read_rows(name)


TOOLS = ("openai_tools.jsonl", "openai_tools_column_only.jsonl", "sharegpt_tools.jsonl")


@pytest.mark.parametrize("name", TOOLS)
def test_a_conversation_has_its_tools_calls_and_results(name):
    for number, (problem, reply) in enumerate(zip(read(name), REPLIES, strict=True)):
        assert problem.tools is not None
        assert [tool["function"]["name"] for tool in json.loads(problem.tools)] == ["add"]
        assert problem.turns is not None
        assert (problem.turns[0], problem.solution) == (Turn("user", LONG[number]), reply)
        if name == "openai_tools_column_only.jsonl":
            assert len(problem.turns) == 1
            continue
        _, called, result = problem.turns
        a, b = NUMBERS[number]
        (call,) = called.calls
        assert (called.content, call.name) == ("", "add")
        assert json.loads(call.arguments) == {"a": a, "b": b}
        assert (result.role, result.content, result.answers) == ("tool", SUMS[number], call)


@pytest.mark.parametrize(
    ("name", "key", "reasoning"),
    [
        ("reasoning_content.jsonl", "reasoning_content", WORKINGS),
        ("thinking_key.jsonl", "thinking", ["add them"] * 6),
        ("tool_calls_at_end.jsonl", "tool_calls", [""] * 6),
    ],
)
def test_reasoning_and_calls_are_parts_of_the_reply_unless_they_are_ignored(name, key, reasoning):
    replies = [problem.reply for problem in read(name)]
    assert [reply and reply.reasoning for reply in replies] == reasoning
    assert [bool(reply and reply.calls) for reply in replies] == [key == "tool_calls"] * 6
    assert all(problem.solution and problem.reply is None for problem in read(name, ignore=[key]))


BY_CONTENT = FORMATS.with_name("formats_by_content")
NAMED: dict[str, tuple[str, dict[str, Any], str]] = {
    # file -> words of its refusal, options by which it is read, words of the first problem
    "logiqa2.jsonl": ("text", {"columns": {"question": "{text} {question}", "choices": "options",
                                           "answer": "answer"}}, "(case 0). How many"),
    "crux.jsonl": (
        "code", {"columns": {"question": "{code}\n{input}", "answer": "output"}}, "def f"),
    "tools_function_reply.jsonl": (
        "function", {"columns": {"messages": "messages", "tools": "function"}}, '"name": "add"'),
    "nemo_gym_other.jsonl": (
        "responses_create_params", {"columns": {"messages": "responses_create_params.input",
        "tools": "responses_create_params.tools", "answer": "expected_answer"},
        "ignore": ["question"]}, "Use the tool."),
    "prefixed.json": ("question_prefix", {"columns": {
        "question": "{question_prefix}{question}", "answer": "answer"}}, "In base 7: Sum"),
    "superni_plain.json": ("Definition", {"columns": {
        "user": "{Definition.0} {input}", "assistant": "output"}}, "not digits. Sum"),
    "swe_traj.jsonl": ("false in 3 of 6 rows", {"where": {"resolved": True}}, "OBSERVATION: 10"),
    "card_two_datadirs": ("a, b", {"name": "a"}, "p0"),
    "card_escape_abs": ("/etc/passwd", {}, ""), "card_yaml_bomb": ("configs", {}, ""),
    "tal_scq.jsonl": ("answer_option_list", {"columns": {
        "question": "problem", "choices": "answer_option_list", "answer": "answer_value"},
        "ignore": ["answer_analysis"]}, "(A) $$4$$"),
    "medqa_struct.parquet": ("", {}, "(D) 2"), "sys_missing_content.jsonl": ("", {}, "five"),
    "sys_null_first_only.jsonl": ("", {}, "Be brief."), "thirty_openings.jsonl": ("", {}, "game 0"),
    "agentinstruct.jsonl": ("", {}, "OK."), "no_solution_rl.jsonl": ("", {}, "easily"),
    "hle.jsonl": ("answer_type", {"ignore": ["rationale", "answer_type"]}, "basket 0"),
    "openai_eval.jsonl": ("", {}, "answer='5'"), "dev_split.jsonl": ("", {}, "train"),
    "rlhflow_prm.jsonl": ("`steps`", {}, ""), "versaprm.jsonl": ("`steps`", {}, ""),
    "py_cell.csv": ("parquet", {}, ""), "arrays_py.csv": ("options", {}, ""),
    "synthetic1.jsonl": ("verification_info", {}, ""), "orpo_mix.jsonl": ("`pairs`", {}, ""),
    "bfcl_simple.jsonl": (
        "function", {"columns": {"messages": "question.0", "tools": "function"}}, "Mia picks"),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_what_a_file_says_is_read_or_named(name):
    words, options, expected = NAMED[name]
    source: dict[str, Any] = {"path": str(BY_CONTENT / name)}
    if words:
        with pytest.raises(ValueError, match=words):
            list(problem_files.read_problems(FileSource(**source), SourceReport(path="")))
    if expected:
        rows = list(problem_files.read_problems(
            FileSource.model_validate(source | options), SourceReport(path="")))  # fmt: skip
        assert not [row for row in rows if isinstance(row, BadRow)]
        assert expected in str(rows[0])


def test_the_tables_name_every_file():
    assert {path.name for path in BY_CONTENT.iterdir()} - {"README.md"} == {*NAMED}
    named = {*CHATS, *PROBLEMS, *MESSAGES, *GOLDS, *PAIRS, *STEPS, *REFUSED, *TOOLS} | {
        "solution_without_statement.jsonl", "dpo_text_implicit.jsonl", "reasoning_content.jsonl",
        "thinking_key.jsonl", "tool_calls_at_end.jsonl",
    }  # fmt: skip
    assert {path.name for path in FORMATS.iterdir()} == named
