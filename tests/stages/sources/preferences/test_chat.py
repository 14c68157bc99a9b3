import pytest

from stages.records.preferences import Turn
from stages.sources.preferences import chat
from stages.sources.preferences.columns import Columns
from stages.sources.quarantine import RejectedError

COLUMNS = Columns(prompt=None, chosen="chosen", rejected="rejected", probability=None)
APART = COLUMNS.model_copy(update={"prompt": "prompt"})
SYSTEM, HI = {"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi "}


def says(content: object) -> dict[str, object]:
    return {"role": "assistant", "content": content}


def test_the_shared_messages_are_the_prompt_wherever_they_stand():
    whole = {"chosen": [SYSTEM, HI, says("Yes")], "rejected": [SYSTEM, HI, says("No")]}
    apart = {"prompt": [SYSTEM, HI], "chosen": [says("Yes")], "rejected": [says("No")]}
    found = chat.pair(whole, COLUMNS, 1)
    assert found == chat.pair(apart, APART, 1)
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
        chat.pair({"chosen": chosen, "rejected": [HI, says("No")]}, COLUMNS, 1)
