from dataclasses import replace

import pytest

from stages.records.preferences import RawPreference, Turn
from stages.sources import preference_formats
from stages.sources.preference_formats import Columns, better_first, check_answers
from stages.sources.quarantine import RejectedError

PAIR = RawPreference(
    turns=(Turn("user", "Hi"),),
    plain_prompt="Hi",
    plain_lead="",
    chosen="a",
    rejected="b",
    probability=0.25,
    line=1,
)


def test_an_answer_that_is_less_likely_the_better_one_is_the_rejected_one():
    assert better_first(PAIR) == replace(PAIR, chosen="b", rejected="a", probability=0.75)
    sure = replace(PAIR, probability=1.0)
    assert better_first(sure) is sure


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"chosen": " \n"}, "empty answer"), ({"rejected": " a\n"}, "equal answers")],
)
def test_answers_that_say_nothing_or_the_same_are_refused(change, reason):
    assert check_answers(PAIR) is PAIR
    with pytest.raises(RejectedError, match=f"^{reason}: "):
        check_answers(replace(PAIR, **change))


COLUMNS = Columns(prompt="prompt", chosen="chosen", rejected="rejected", probability="label")
ROW = {"prompt": "2+2?\n", "chosen": "4", "rejected": " 5", "label": 0.75}


def test_prompt_and_answers_are_taken_as_they_are():
    found = preference_formats.text_pair(ROW, COLUMNS, 3)
    assert (found.plain_prompt, found.plain_lead) == ("2+2?\n", "")
    assert (found.chosen, found.rejected, found.probability) == ("4", " 5", 0.75)
    assert found.turns[0].content == "2+2?"


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
    ],
)
def test_a_bad_field_is_refused(change, reason):
    with pytest.raises(RejectedError, match=f"^{reason}: "):
        preference_formats.text_pair(ROW | change, COLUMNS, 1)


TRANSCRIPT_COLUMNS = Columns(prompt=None, chosen="chosen", rejected="rejected", probability=None)
OPEN = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Is it 4?\n\nAssistant:"
TURNS = (Turn("user", "Hi"), Turn("assistant", "Hello"), Turn("user", "Is it 4?"))


def pair(chosen: str, rejected: str):
    return preference_formats.transcript_pair(
        {"chosen": chosen, "rejected": rejected}, TRANSCRIPT_COLUMNS, 7
    )


def test_the_last_turn_is_the_answer_and_the_others_are_the_prompt():
    found = pair(f"{OPEN} Yes. ", f"{OPEN} No.")
    assert found.turns == TURNS
    assert (found.chosen, found.rejected) == ("Yes.", "No.")
    assert (found.plain_prompt, found.plain_lead) == (OPEN, " ")
    assert (found.probability, found.line) == (1.0, 7)


def test_what_is_rendered_is_parsed_again():
    assert preference_formats.parse_transcript(
        preference_formats.render_transcript(TURNS) + " Yes"
    ) == [*TURNS, Turn("assistant", "Yes")]
    assert preference_formats.render_transcript(
        (Turn("system", "Be brief."), Turn("user", "Hi"))
    ) == ("Be brief.\n\nHuman: Hi\n\nAssistant:")


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


CHAT_COLUMNS = Columns(prompt=None, chosen="chosen", rejected="rejected", probability=None)
APART = CHAT_COLUMNS.model_copy(update={"prompt": "prompt"})
SYSTEM, HI = {"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi "}


def says(content: object) -> dict[str, object]:
    return {"role": "assistant", "content": content}


def test_the_shared_messages_are_the_prompt_wherever_they_stand():
    whole = {"chosen": [SYSTEM, HI, says("Yes")], "rejected": [SYSTEM, HI, says("No")]}
    apart = {"prompt": [SYSTEM, HI], "chosen": [says("Yes")], "rejected": [says("No")]}
    found = preference_formats.chat_pair(whole, CHAT_COLUMNS, 1)
    assert found == preference_formats.chat_pair(apart, APART, 1)
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
        preference_formats.chat_pair(
            {"chosen": chosen, "rejected": [HI, says("No")]}, CHAT_COLUMNS, 1
        )
