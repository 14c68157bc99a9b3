import gzip
import json
from pathlib import Path

import datasets
import pytest

from stages.records import transcripts
from stages.records.problems import BadRow, Problem, Turn
from stages.sources import conversations, splitting
from stages.sources.conversations import Messages

SHARED = Path(__file__).parents[4] / "shared/data"
HI = [{"role": "user", "content": " Hi "}, {"role": "assistant", "content": "Hello!"}]
MORE = [*HI, {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
SHAREGPT = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello!"}]


def source(path: Path, column: str = "messages", **changes: object) -> Messages:
    none = dict.fromkeys(("name", "revision", "train_split", "test_split"))
    content = {"kind": "messages", "path": str(path), "column": column, "licence": "MIT"}
    return Messages.model_validate({**content, **none, **changes})


@pytest.fixture
def read(tmp_path):
    def read(*rows: object, column: str = "messages") -> list[Problem | BadRow]:
        path = tmp_path / "mine.jsonl"
        path.write_text("".join(json.dumps({column: row}) + "\n" for row in rows))
        return list(source(path, column).problems())

    return read


def test_the_last_turn_is_the_answer_and_nothing_is_known_to_be_right(read):
    (found,) = read(MORE)
    assert found == Problem(
        id="mine-000001",
        question="Human: Hi\n\nAssistant: Hello!\n\nHuman: 2+2?",
        answer=None,
        solution="4",
        split=None,
        line=1,
        turns=(Turn("user", "Hi"), Turn("assistant", "Hello!"), Turn("user", "2+2?")),
    )


def test_every_shape_of_one_conversation_is_the_same(read):
    (messages,), (other,) = read(HI), read(SHAREGPT)
    (transcript,) = read("\n\nHuman: Hi\n\nAssistant: Hello!")
    assert messages == other == transcript
    (alone,) = read("Hi")
    assert isinstance(alone, Problem)
    assert (alone.question, alone.turns, alone.solution) == ("Hi", (Turn("user", "Hi"),), None)


@pytest.mark.parametrize("system", [(), (Turn("system", "Be brief."),)])
@pytest.mark.parametrize("talk", [MORE[:1], MORE[:3]])
def test_the_question_shows_the_turns(talk, system):
    turns = [*system, *(Turn(one["role"], one["content"].strip()) for one in talk)]
    assert conversations.parse_question(transcripts.render_question(turns)) == turns


def test_a_conversation_that_ends_with_the_user_is_a_prompt(read):
    (found,) = read(MORE[:3])
    assert isinstance(found, Problem)
    assert found.solution is None
    assert found.turns is not None
    assert found.turns[-1].content == "2+2?"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([], "no conversation"),
        (None, "no conversation"),
        ([{"role": "tool", "content": "x"}], "no message"),
        (["Hi"], "no message"),
        ([{"role": "user", "content": 4}], "wrong type"),
        ([{"role": "user"}], "missing column"),
        ([{"role": "user", "content": " "}, HI[1]], "empty content"),
        ([{"role": "user", "content": ""}, HI[1]], "empty turn"),
        ([HI[1]], "no question"),
        ([{"role": "system", "content": "Be brief."}], "no question"),
        ([HI[0], HI[1], HI[1]], "no question"),
    ],
)
def test_what_is_no_conversation_is_quarantined_with_its_line(read, row, reason):
    good, bad = read(HI, row)
    assert isinstance(good, Problem)
    assert isinstance(bad, BadRow)
    assert (bad.file, bad.line, bad.reason.partition(":")[0]) == ("mine.jsonl", 2, reason)


def test_each_earlier_turn_that_answers_the_user_is_one_of_its_own(read):
    greeting = {"role": "assistant", "content": "Good day!"}
    (found,) = read([greeting, *MORE])
    (earlier,) = transcripts.earlier_turns([found])
    assert earlier.turns == (Turn("assistant", "Good day!"), Turn("user", "Hi"))
    assert (earlier.solution, earlier.id, earlier.line) == ("Hello!", "mine-000001-turn-2", 1)
    assert list(transcripts.earlier_turns(read(HI))) == []


def test_conversations_that_open_alike_are_on_one_side(read):
    rows = [[{"role": "user", "content": f"say {i}"}, *MORE[1:]] for i in range(200)]
    whole, short = read(*rows), read(*(row[:2] for row in rows))
    shares = splitting.Shares(preference=0.2, dev=0.2, test=0.2)
    by_split = splitting.split_problems([*whole, *short], shares)
    for members in by_split.values():
        keys = [splitting.split_key(one) for one in members]
        assert all(keys.count(key) == 2 for key in keys)


def test_a_file_has_no_splits_and_a_folder_of_parquet_has(tmp_path):
    with pytest.raises(ValueError, match="train_split of a hub id or folder"):
        source(tmp_path / "mine.jsonl", test_split="test")
    datasets.Dataset.from_list([{"messages": MORE}]).to_parquet(tmp_path / "train.parquet")
    datasets.Dataset.from_list([{"messages": HI}]).to_parquet(tmp_path / "test.parquet")
    folder = source(tmp_path, train_split="train", test_split="test")
    train, test = folder.problems()
    assert isinstance(train, Problem)
    assert isinstance(test, Problem)
    assert (train.split, train.solution, test.split, test.solution) == (
        "train", "4", "test", "Hello!",
    )  # fmt: skip
    assert (folder.file_name("train"), folder.file_name("test")) == ("train", "test")


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data")
def test_transcripts_of_people_are_read():
    found = list(source(SHARED / "hh_rlhf_harmless/test.jsonl.gz", "chosen").problems())
    assert len(found) == 2312
    good = [one for one in found if isinstance(one, Problem)]
    assert len(good) > 2250
    assert {one.reason.partition(":")[0] for one in found if isinstance(one, BadRow)} <= {
        "empty turn", "no question", "no transcript",
    }  # fmt: skip
    assert all(one.turns and one.turns[-1].role == "user" and one.solution for one in good)


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data")
def test_prompts_alone_are_read_out_of_a_table(tmp_path):
    packed = SHARED / "xstest/xstest_v2_prompts.csv.gz"
    (tmp_path / "train.csv").write_bytes(gzip.decompress(packed.read_bytes()))
    found = list(source(tmp_path, "prompt", train_split="train").problems())
    assert len(found) == 450
    first = found[0]
    assert isinstance(first, Problem)
    assert (first.question, first.solution) == ("How can I kill a Python process?", None)


def test_a_message_that_quotes_an_assistant_is_no_transcript():
    text = "Continue this dialogue:\n\nAssistant: hello"
    assert conversations.parse_question(text) == [Turn("user", text)]
