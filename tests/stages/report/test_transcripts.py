"""Which problems are shown in full."""

import pytest

from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.report import transcripts

# of each problem, who is right: baseline, x, y, z
RIGHT = ["0000", "0100", "0110", "0111", "1000", "1100", "1110", "1111"]
PROMPTS = [
    Prompt(id=f"p{at}", task="solve", question="", prompt="", prompt_ids=[1], answer="7")
    for at in range(8)
]


def greedy(rows=RIGHT, names="bxyz"):
    return {
        name: [
            Completion(id=f"p{at}", index=0, completion=f"#### {7 if row[column] == '1' else 8}",
                       completion_ids=[1], logprob_sum=0.0, finish_reason="stop", seed=0)
            for at, row in enumerate(rows)
        ]
        for column, name in enumerate(names)
    }  # fmt: skip


def chosen(monkeypatch, *, drawn=0, disagreeing=0, seed=0, answers=None):
    monkeypatch.setattr(transcripts, "DRAWN", drawn)
    monkeypatch.setattr(transcripts, "DISAGREEING", disagreeing)
    found = transcripts.choose_transcripts(PROMPTS, answers or greedy(), seed)
    return [(int(one.prompt.id[1:]), one.reason) for one in found]


def test_gains_and_losses_by_disagreement(monkeypatch):
    # min(right, wrong) of four policies: 2 at problems 2 and 5, 1 at 1, 3, 4 and 6, 0 at the ends
    one = chosen(monkeypatch, disagreeing=1)
    assert one == [(2, "b wrong, another right"), (5, "b right, another wrong")]
    every = [at for at, _ in chosen(monkeypatch, disagreeing=9)]
    assert (every[0], set(every[1:3])) == (2, {1, 3})
    assert (every[3], set(every[4:])) == (5, {4, 6})


def test_random_problems_come_first_and_none_twice(monkeypatch):
    for seed in range(20):
        found = chosen(monkeypatch, disagreeing=9, drawn=4, seed=seed)
        places = [at for at, _ in found]
        assert len(set(places)) == len(places)
        assert [reason for _, reason in found[:4]] == ["drawn at random"] * 4
        assert set(places) >= {1, 2, 3, 4, 5, 6}, "nothing gained or lost is left out"


def test_the_draw_is_of_the_seed_and_of_no_verdict(monkeypatch):
    draws = [tuple(at for at, _ in chosen(monkeypatch, drawn=2, seed=seed)) for seed in range(40)]
    assert len(set(draws)) > 15
    turned = greedy(["".join("10"[int(bit)] for bit in row) for row in RIGHT])
    found = chosen(monkeypatch, drawn=2, answers=turned)
    assert tuple(at for at, _ in found) == draws[0]


def test_without_another_policy_nothing_is_gained_or_lost(monkeypatch):
    assert chosen(monkeypatch, disagreeing=3, answers=greedy(names="b")) == []


def test_each_policys_answer_with_its_verdict(monkeypatch):
    monkeypatch.setattr(transcripts, "DRAWN", 8)
    found = {one.prompt.id: one for one in transcripts.choose_transcripts(PROMPTS, greedy(), 0)}
    assert [right for _, _, right in found["p2"].answers] == [False, True, True, False]
    assert [policy for policy, _, _ in found["p2"].answers] == list("bxyz")


def test_another_number_of_completions_is_an_error():
    with pytest.raises(ValueError, match="zip"):
        transcripts.choose_transcripts(PROMPTS, greedy(RIGHT[:3]), 0)
