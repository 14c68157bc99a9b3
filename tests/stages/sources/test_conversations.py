import json

import pytest

from stages.records import transcripts
from stages.records.problems import BadRow, Problem, Turn
from stages.sources import containers, conversations, problem_files, splitting
from stages.sources.columns import Columns
from stages.sources.problem_files import FileSource, SourceReport
from stages.sources.quarantine import RejectedError

HI = [{"role": "user", "content": " Hi "}, {"role": "assistant", "content": "Hello!"}]
MORE = [*HI, {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
SHAREGPT = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello!"}]


@pytest.fixture
def read(tmp_path):
    def read(*rows: object, column: str = "messages") -> list[Problem | BadRow]:
        path = tmp_path / "mine.jsonl"
        path.write_text("".join(json.dumps({column: row}) + "\n" for row in rows))
        source = FileSource(path=str(path), columns=Columns(messages=column))
        return list(problem_files.read_problems(source, SourceReport(path="mine")))

    return read


def test_the_last_turn_is_the_answer_and_nothing_is_known_to_be_right(read):
    (result,) = read(MORE)
    assert result == Problem(
        id="mine-000001",
        question="Human: Hi\n\nAssistant: Hello!\n\nHuman: 2+2?",
        answer=None,
        solution="4",
        split=None,
        line=1,
        file="mine.jsonl",
        turns=(Turn("user", "Hi"), Turn("assistant", "Hello!"), Turn("user", "2+2?")),
    )


def test_every_shape_of_one_conversation_is_the_same(read):
    (messages,), (other,) = read(HI), read(SHAREGPT)
    assert messages == other
    for text in (
        "\n\nHuman: Hi\n\nAssistant: Hello!",
        "Human: Hi\nAssistant: Hello!",
        json.dumps(HI),
        [{"role": "User", "content": [{"type": "text", "text": "Hi"}]}, HI[1]],
        [{"role": "system", "content": ""}, *HI],
    ):
        assert read(text) == [messages]
    (alone,) = read("Hi")
    assert isinstance(alone, Problem)
    assert (alone.question, alone.turns, alone.solution) == ("Hi", (Turn("user", "Hi"),), None)


@pytest.mark.parametrize("system", [(), (Turn("system", "Be brief."),)])
@pytest.mark.parametrize("talk", [MORE[:1], MORE[:3]])
def test_the_question_shows_the_turns(talk, system):
    turns = [*system, *(Turn(item["role"], item["content"].strip()) for item in talk)]
    assert conversations.parse_question(transcripts.render_question(turns)) == turns


def test_a_conversation_that_ends_with_the_user_is_a_prompt(read):
    (result,) = read(MORE[:3])
    assert isinstance(result, Problem)
    assert result.solution is None
    assert result.turns is not None
    assert result.turns[-1].content == "2+2?"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([], "no conversation"),
        (None, "empty messages"),
        ([{"role": "tool", "content": "x"}], "no question"),
        ([{"role": "critic", "content": "x"}], "no message"),
        ([HI[0], HI[1] | {"tool_calls": [1]}], "tool call"),
        ([HI[0], HI[1] | {"tool_calls": [{"name": "add", "arguments": "[3]"}]}], "tool call"),
        ([HI[0], {"from": "function_call", "value": "add(3)"}], "tool call"),
        ([HI[0] | {"reasoning_content": "So"}, HI[1]], "no message"),
        ([HI[0], HI[1] | {"reasoning": "So", "thinking": "No"}], "contradiction"),
        ([HI[0] | {"tools": [{"name": "add"}]}, HI[1]], "unread key"),
        ([HI[0], HI[1] | {"images": ["a.png"]}], "unread key"),
        ([HI[0], HI[1] | {"rating": 0}], "unread key"),
        ([HI[0], HI[1] | {"train_on": False}], "unread key"),
        ([HI[0], HI[1] | {"deleted": True}], "unread key"),
        ([HI[0], HI[1] | {"chain_of_thought": "So"}], "unread key"),
        ([HI[0], HI[1] | {"tool_use": [{"name": "add"}]}], "unread key"),
        ([HI[0], HI[1] | {"channel": "analysis"}], "unread key"),
        ([HI[0], HI[1] | {"recipient": "functions.add"}], "unread key"),
        ([HI[0], HI[1] | {"value": "Bye"}], "unread key"),
        ([HI[0], HI[1] | {"from": "human"}], "contradiction"),
        ([{"role": "user", "content": [{"text": "Hi", "image": "x.png"}]}, HI[1]], "unread key"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}], "no text"),
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


WILDCHAT = {
    "hashed_ip": "f2", "header": {"accept-language": "en"}, "country": "US", "state": "Ohio",
    "language": "English", "redacted": False, "toxic": True, "turn_identifier": 7, "created": 17,
    "timestamp": None, "model": "m", "usage": {"total_tokens": 9}, "finish_reason": "stop",
}  # fmt: skip


@pytest.mark.parametrize(
    "more",
    [
        WILDCHAT,
        {"weight": 1, "id": "a", "message_id": 3, "name": "Ann"},
        {"channel": "final", "recipient": "all", "end_turn": True, "content_type": "text"},
        {"value": None, "rating": None, "annotations": [], "image": None, "refusal": ""},
        {"value": "Hello!", "markdown": "Hello!", "from": "gpt"},
        {"content": [{"type": "text", "text": "Hello!", "image": None, "mimeType": None}]},
        {"content": None, "value": "Hello!"},
    ],
)
def test_keys_that_say_nothing_of_a_turn_change_nothing(read, more):
    assert read([HI[0], HI[1] | more]) == read(HI)


def test_a_key_of_a_message_or_of_a_part_may_be_ignored(tmp_path):
    path = tmp_path / "mine.jsonl"
    part = {"type": "text", "text": "Hello!", "image": "x.png"}
    path.write_text(json.dumps({"messages": [HI[0], HI[1] | {"rating": 5, "content": [part]}]}))
    source = FileSource(path=str(path), ignore=["rating", "image"])
    (result,) = problem_files.read_problems(source, SourceReport(path="mine"))
    assert isinstance(result, Problem)
    assert result.solution == "Hello!"


def test_each_earlier_turn_that_answers_the_user_is_one_of_its_own(read):
    greeting = {"role": "assistant", "content": "Good day!"}
    (result,) = read([greeting, *MORE])
    (earlier,) = transcripts.earlier_turns([result])
    assert earlier.turns == (Turn("assistant", "Good day!"), Turn("user", "Hi"))
    assert (earlier.solution, earlier.id, earlier.line) == ("Hello!", "mine-000001-turn-2", 1)
    assert list(transcripts.earlier_turns(read(HI))) == []


def test_conversations_that_open_alike_are_on_one_side(read):
    rows = [[{"role": "user", "content": f"say {i}"}, *MORE[1:]] for i in range(200)]
    whole, short = read(*rows), read(*(row[:2] for row in rows))
    shares = splitting.Shares(preference=0.2, dev=0.2, test=0.2)
    by_split = splitting.split_problems([*whole, *short], shares)
    for members in by_split.values():
        keys = [splitting.split_key(member) for member in members]
        assert all(keys.count(key) == 2 for key in keys)


def test_a_file_of_messages_may_have_every_key_of_a_message_that_is_read():
    assert conversations.READ_KEYS <= containers.MESSAGE_KEYS


def test_messages_of_oasst_have_a_text():
    message = {"role": "prompter", "text": " Hi ", "lang": "en"}
    assert conversations.read_conversation([message], "c") == [Turn("user", "Hi")]
    with pytest.raises(RejectedError, match="unread key: a message has 'text'"):
        conversations.read_conversation([message | {"content": "Ho"}], "c")
