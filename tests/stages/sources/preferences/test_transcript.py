import pytest

from stages.records.preferences import Turn
from stages.sources.preferences import transcript
from stages.sources.preferences.columns import Columns
from stages.sources.quarantine import RejectedError

COLUMNS = Columns(prompt=None, chosen="chosen", rejected="rejected", probability=None)
OPEN = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Is it 4?\n\nAssistant:"
TURNS = (Turn("user", "Hi"), Turn("assistant", "Hello"), Turn("user", "Is it 4?"))


def pair(chosen: str, rejected: str):
    return transcript.pair({"chosen": chosen, "rejected": rejected}, COLUMNS, 7)


def test_the_last_turn_is_the_answer_and_the_others_are_the_prompt():
    found = pair(f"{OPEN} Yes. ", f"{OPEN} No.")
    assert found.turns == TURNS
    assert (found.chosen, found.rejected) == ("Yes.", "No.")
    assert (found.plain_prompt, found.plain_lead) == (OPEN, " ")
    assert (found.probability, found.line) == (1.0, 7)


def test_what_is_rendered_is_parsed_again():
    assert transcript.parse(transcript.render(TURNS) + " Yes") == [*TURNS, Turn("assistant", "Yes")]
    assert transcript.render((Turn("system", "Be brief."), Turn("user", "Hi"))) == (
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
