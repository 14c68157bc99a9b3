from dataclasses import replace

import pytest

from stages.records.preferences import Preference, RawPreference, Turn
from stages.sources.preference_files import opening, split


def pair(question: str, *more: Turn) -> tuple[RawPreference, Preference]:
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
    sides = split([pair(f"{i}?") for i in range(4000)], 0.1)
    assert sum(len(rows) for rows in sides.values()) == 4000
    # four standard deviations of a binomial count are 76
    assert abs(len(sides["heldout"]) - 400) < 76


def test_a_side_does_not_depend_on_the_other_pairs():
    everything = [pair(f"{i}?") for i in range(500)]
    held = {row.id for row in split(everything, 0.2)["heldout"]}
    some = split(everything[::-3], 0.2)
    assert {row.id for row in some["heldout"]} <= held
    assert not {row.id for row in some["train"]} & held


def test_all_lengths_of_a_conversation_and_all_spellings_of_a_question_are_on_one_side():
    said = Turn("assistant", "Hm"), Turn("user", "And?")
    for i in range(50):
        short, long, loud = pair(f"say {i}"), pair(f"say {i}", *said), pair(f"SAY  {i} ")
        assert opening(short[0]) == opening(long[0]) == opening(loud[0])
    rows = [pair(f"say {i}", *turns) for i in range(50) for turns in ((), said)]
    held = [row.id for row in split(rows, 0.3)["heldout"]]
    assert all(held.count(name) == 2 for name in held)


def test_the_system_message_belongs_to_the_opening():
    raw, _ = pair("Hi")
    assert opening(replace(raw, turns=(Turn("system", "Be brief."), *raw.turns))) != opening(raw)


def test_a_conversation_that_the_assistant_opens_is_known_by_what_was_asked():
    hello, said = Turn("assistant", "Hello!"), Turn("assistant", "Hm")
    raw, _ = pair("Hi")
    turns = [(hello, Turn("user", f"say {i}")) for i in range(2)]
    first, second = (opening(replace(raw, turns=own)) for own in turns)
    assert first != second
    longer = (*turns[0], said, Turn("user", "And?"))
    assert opening(replace(raw, turns=longer)) == first == "hello! say 0"


def test_an_empty_side_is_refused():
    with pytest.raises(ValueError, match=r"1 pairs leave .* empty"):
        split([pair("Hi")], 0.5)
