"""The lists of planted faults fit the code of today, and are long enough to say something."""

from collections import Counter

from mutants.__main__ import ROOT, read_lists

LISTS = read_lists([])
FAULTS = [fault for _, faults in LISTS.values() for fault in faults]


def test_every_fault_can_be_planted():
    texts = {fault.file: (ROOT / fault.file).read_text(encoding="utf-8") for fault in FAULTS}
    assert [fault.id for fault in FAULTS if texts[fault.file].count(fault.old) != 1] == []
    assert [fault.id for fault in FAULTS if fault.old == fault.new] == []
    for tests, _ in LISTS.values():
        assert [test for test in tests if not (ROOT / test).exists()] == []


def test_there_are_enough_and_ids_of_a_list_are_unique():
    assert len(FAULTS) >= 150
    for name, (_, faults) in LISTS.items():
        numbers = Counter(fault.id for fault in faults)
        assert (name, [fault for fault, number in numbers.items() if number > 1]) == (name, [])
