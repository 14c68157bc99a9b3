import pytest

from stages.records import transcripts
from stages.records.preferences import Preference, RawPreference
from stages.records.problems import Turn
from stages.sources import conversations
from stages.sources.preference_files import PreferenceColumns, read_pair, split_pairs
from stages.sources.quarantine import RejectedError
from stages.sources.splitting import opening


def opened(question: str, *more: Turn) -> tuple[RawPreference, Preference]:
    raw = RawPreference(
        turns=(Turn("user", question), *more),
        plain_prompt=question,
        plain_lead="",
        chosen="a",
        rejected="b",
        probability=1.0,
        line=1,
    )
    row = Preference(
        id=question,
        prompt=question,
        prompt_ids=[],
        chosen="a",
        chosen_ids=[],
        rejected="b",
        rejected_ids=[],
        probability=1.0,
        source="human",
    )
    return raw, row


def test_the_share_is_met_and_every_pair_is_on_one_side():
    sides = split_pairs([opened(f"{i}?") for i in range(4000)], 0.1)
    assert sum(len(rows) for rows in sides.values()) == 4000
    # four standard deviations of a binomial count are 76
    assert abs(len(sides["heldout"]) - 400) < 76


def test_a_side_does_not_depend_on_the_other_pairs():
    everything = [opened(f"{i}?") for i in range(500)]
    held = {row.id for row in split_pairs(everything, 0.2)["heldout"]}
    some = split_pairs(everything[::-3], 0.2)
    assert {row.id for row in some["heldout"]} <= held
    assert not {row.id for row in some["train"]} & held


def test_all_lengths_of_a_conversation_and_all_spellings_of_a_question_are_on_one_side():
    said = Turn("assistant", "Hm"), Turn("user", "And?")
    for i in range(50):
        short, long, loud = opened(f"say {i}"), opened(f"say {i}", *said), opened(f"SAY  {i} ")
        assert opening(short[0].turns) == opening(long[0].turns) == opening(loud[0].turns)
    rows = [opened(f"say {i}", *turns) for i in range(50) for turns in ((), said)]
    held = [row.id for row in split_pairs(rows, 0.3)["heldout"]]
    assert all(held.count(name) == 2 for name in held)


def test_the_system_message_belongs_to_the_opening():
    raw, _ = opened("Hi")
    assert opening((Turn("system", "Be brief."), *raw.turns)) != opening(raw.turns)


def test_a_conversation_that_the_assistant_opens_is_known_by_what_was_asked():
    hello, said = Turn("assistant", "Hello!"), Turn("assistant", "Hm")
    turns = [(hello, Turn("user", f"say {i}")) for i in range(2)]
    first, second = (opening(own) for own in turns)
    assert first != second
    longer = (*turns[0], said, Turn("user", "And?"))
    assert opening(longer) == first == "hello! say 0"


def test_an_empty_side_is_refused():
    with pytest.raises(ValueError, match=r"1 rows leave .* empty"):
        split_pairs([opened("Hi")], 0.5)


COLUMNS = PreferenceColumns(
    prompt="prompt", chosen="chosen", rejected="rejected", probability="label"
)
ROW = {"prompt": "2+2?\n", "chosen": "4", "rejected": " 5", "label": 0.75}


def test_prompt_and_answers_are_taken_as_they_are():
    found = read_pair(ROW, 3, form="text", columns=COLUMNS)
    assert (found.plain_prompt, found.plain_lead) == ("2+2?\n", "")
    assert (found.chosen, found.rejected, found.probability) == ("4", " 5", 0.75)
    assert found.turns[0].content == "2+2?"


def test_an_answer_that_is_less_likely_the_better_one_is_the_rejected_one():
    found = read_pair(ROW | {"label": 0.25}, 3, form="text", columns=COLUMNS)
    assert (found.chosen, found.rejected, found.probability) == (" 5", "4", 0.75)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prompt": ""}, "no common prompt"),
        ({"prompt": None}, "no common prompt"),
        ({"prompt": 3}, "wrong type"),
        ({"chosen": None}, "empty chosen"),
        ({"label": "yes"}, "no probability"),
        ({"label": 1.5}, "no probability"),
        ({"label": float("nan")}, "no probability"),
        ({"label": None}, "no probability"),
        ({"label": 0.5}, "tie"),
        ({"chosen": " \n"}, "empty chosen"),
        ({"chosen": ""}, "empty answer"),
        ({"rejected": " 4\n"}, "equal answers"),
    ],
)
def test_a_bad_field_is_refused(change, reason):
    with pytest.raises(RejectedError, match=f"^{reason}: "):
        read_pair(ROW | change, 1, form="text", columns=COLUMNS)


TRANSCRIPT_COLUMNS = PreferenceColumns(
    prompt=None, chosen="chosen", rejected="rejected", probability=None
)
OPEN = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Is it 4?\n\nAssistant:"
TURNS = (Turn("user", "Hi"), Turn("assistant", "Hello"), Turn("user", "Is it 4?"))


def pair(chosen: str, rejected: str):
    return read_pair(
        {"chosen": chosen, "rejected": rejected}, 7, form="transcript", columns=TRANSCRIPT_COLUMNS
    )


def test_the_last_turn_is_the_answer_and_the_others_are_the_prompt():
    found = pair(f"{OPEN} Yes. ", f"{OPEN} No.")
    assert found.turns == TURNS
    assert (found.chosen, found.rejected) == ("Yes.", "No.")
    assert (found.plain_prompt, found.plain_lead) == (OPEN, " ")
    assert (found.probability, found.line) == (1.0, 7)


def test_what_is_rendered_is_parsed_again():
    assert conversations.parse_transcript(transcripts.render_transcript(TURNS) + " Yes") == [
        *TURNS,
        Turn("assistant", "Yes"),
    ]
    assert transcripts.render_transcript((Turn("system", "Be brief."), Turn("user", "Hi"))) == (
        "Be brief.\n\nHuman: Hi\n\nAssistant:"
    )


def test_a_name_inside_a_line_or_a_paragraph_of_the_answer_is_text():
    found = pair(f"{OPEN} Human: no.\n\nYes: Human: 4.\nAssistant: ok", f"{OPEN} No.")
    assert found.chosen == "Human: no.\n\nYes: Human: 4.\nAssistant: ok"


@pytest.mark.parametrize(
    ("chosen", "rejected", "reason"),
    [
        (f"{OPEN} Yes", "\n\nHuman: Hi\n\nAssistant: No", "no common prompt"),
        (f"{OPEN} Yes", f"{OPEN.replace('Hi', 'Ho')} No", "no common prompt"),
        (f"{OPEN} Yes\n\nHuman: Why?", f"{OPEN} Yes\n\nHuman: How?", "no answer"),
        ("\n\nAssistant: Yes", "\n\nAssistant: No", "no question"),
        (
            "\n\nHuman: Hi\n\nAssistant: a\n\nAssistant: Yes",
            "\n\nHuman: Hi\n\nAssistant: a\n\nAssistant: No",
            "no question",
        ),
        ("Human: Hi", f"{OPEN} No", "no transcript"),
        (f"Sure.{OPEN} Yes", f"Sure.{OPEN} No", "no transcript"),
    ],
)
def test_pairs_that_share_other_than_all_but_the_answer_are_refused(chosen, rejected, reason):
    with pytest.raises(RejectedError, match=f"^{reason}: "):
        pair(chosen, rejected)


CHAT_COLUMNS = PreferenceColumns(
    prompt=None, chosen="chosen", rejected="rejected", probability=None
)
APART = CHAT_COLUMNS.model_copy(update={"prompt": "prompt"})
SYSTEM, HI = {"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi "}


def says(content: object) -> dict[str, object]:
    return {"role": "assistant", "content": content}


def test_the_shared_messages_are_the_prompt_wherever_they_stand():
    whole = {"chosen": [SYSTEM, HI, says("Yes")], "rejected": [SYSTEM, HI, says("No")]}
    apart = {"prompt": [SYSTEM, HI], "chosen": [says("Yes")], "rejected": [says("No")]}
    found = read_pair(whole, 1, form="chat", columns=CHAT_COLUMNS)
    assert found == read_pair(apart, 1, form="chat", columns=APART)
    assert found.turns == (Turn("system", "Be brief."), Turn("user", "Hi"))
    assert (found.chosen, found.rejected) == ("Yes", "No")
    assert found.plain_prompt == "Be brief.\n\nHuman: Hi\n\nAssistant:"


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ("Yes", "no conversation"),
        ([], "no conversation"),
        ([HI, {"role": "tool", "content": "x"}], "no message"),
        ([HI, "Yes"], "no message"),
        ([HI, says(None)], "empty content"),
        ([HI, says(4)], "wrong type"),
        ([HI, says("\ud800")], "not Unicode"),
        ([SYSTEM, HI, says("Yes")], "no common prompt"),
        ([HI, HI], "no answer"),
    ],
)
def test_a_malformed_conversation_is_refused(chosen, reason):
    with pytest.raises(RejectedError, match=f"^{reason}: "):
        read_pair(
            {"chosen": chosen, "rejected": [HI, says("No")]}, 1, form="chat", columns=CHAT_COLUMNS
        )
