"""Which problems are shown in full."""

import numpy as np
import pytest

from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.report import transcripts

# of each problem, who is right with the first seed: baseline, x, y, z
RIGHT = ["0000", "0100", "0110", "0111", "1000", "1100", "1110", "1111"]
PROMPTS = [
    Prompt(id=f"p{at}", task="solve", question="", prompt="", prompt_ids=[1], answer="7")
    for at in range(8)
]


def complete(names, num_seeds):
    """A completion of each problem by each policy and seed, which tells whose it is."""
    return {
        name: [
            [
                Completion(id=prompt.id, index=0, completion=f"{name} {seed}", completion_ids=[1],
                           logprob_sum=0.0, finish_reason="stop", seed=0)
                for prompt in PROMPTS
            ]
            for seed in range(num_seeds)
        ]
        for name in names
    }  # fmt: skip


def choose(monkeypatch, *verdicts, names="bxyz", drawn=0, seeds=(0,)):
    """The transcripts by each seed's rows of verdicts; of one seed those of RIGHT."""
    monkeypatch.setattr(transcripts, "DRAWN", drawn)
    rows = [[[bit == "1" for bit in row] for row in of_seed] for of_seed in verdicts or [RIGHT]]
    right = np.array(rows).transpose(2, 0, 1)[: len(names)]
    return transcripts.choose_transcripts(PROMPTS, complete(names, len(rows)), seeds, right)


def places(chosen):
    return [int(transcript.prompt.id[1:]) for transcript in chosen]


def test_disagreements_are_counted_over_seeds_and_problems(monkeypatch):
    second = ["01", "01", "00", "00", "00", "11", "11", "11"]
    first = ["00", "01", "01", "01", "10", "11", "11", "11"]
    chosen = choose(monkeypatch, first, second, names="bx", seeds=(0, 1))
    assert chosen.disagreements == [
        {"policies": "b, x", "only the first right": "1", "only the second right": "5",
         "both right": "6", "both wrong": "4"}
    ]  # fmt: skip


def test_two_policies_differ_most_where_one_is_right_with_most_seeds(monkeypatch):
    first = ["01", "01", "01", "01", "10", "11", "10", "00"]
    second = ["01", "01", "01", "00", "10", "11", "00", "10"]
    chosen = choose(monkeypatch, first, second, names="bx", seeds=(3, 4))
    (title, shown), _ = chosen.groups.items()
    assert title == "Where x and b differ most"
    assert (set(places(shown[:3])), places(shown[3:4])) == ({0, 1, 2}, [4])
    # of the two that b alone has right with one seed, the one that is drawn, with that seed
    last = shown[4]
    seed = {6: 3, 7: 4}[int(last.prompt.id[1:])]
    assert last.reason == f"x right with 0 of 2 seeds, b with 1 of 2; here seed {seed}"
    assert last.answers == [("b", f"b {seed - 3}", True), ("x", f"x {seed - 3}", False)]


def test_a_policy_is_set_apart_from_all_others(monkeypatch):
    chosen = choose(monkeypatch)
    titles = [f"What sets {name} apart" for name in "bxyz"]
    pair = "Where x and b differ most"  # problems 1 to 4; the first of the pairs with so many
    assert list(chosen.groups) == [pair, *titles, "Drawn at random"]
    assert set(places(chosen.groups[pair])) == {1, 2, 3, 4}
    # of the rest b is right where 1 of 3 others is, by 2 / 3, and where 2 are, by 1 / 3
    assert places(chosen.groups[titles[0]]) == [5, 6]
    assert [name for name, _, _ in chosen.groups[titles[0]][0].answers] == list("bxyz")
    # where all are right or all are wrong nothing is shown
    assert [chosen.groups[title] for title in titles[1:]] == [[]] * 3


def test_no_problem_is_shown_twice(monkeypatch):
    for seed in range(20):
        chosen = choose(monkeypatch, drawn=4, seeds=(seed,))
        shown = [at for group in chosen.groups.values() for at in places(group)]
        assert len(set(shown)) == len(shown)
        assert len(chosen.groups["Drawn at random"]) == 4
        assert set(shown) >= {1, 2, 3, 4, 5, 6}, "nothing that sets them apart is left out"


def test_the_draw_is_of_the_seed_and_of_no_verdict(monkeypatch):
    def draw(seed, *verdicts):
        chosen = choose(monkeypatch, *verdicts, drawn=2, seeds=(seed,))
        return tuple(places(chosen.groups["Drawn at random"]))

    draws = [draw(seed) for seed in range(40)]
    assert len(set(draws)) > 15
    turned = ["".join("10"[int(bit)] for bit in row) for row in RIGHT]
    assert draw(0, turned) == draws[0]


def test_one_policy_alone_is_shown_at_random(monkeypatch):
    chosen = choose(monkeypatch, names="b", drawn=2)
    assert list(chosen.groups) == ["Drawn at random"]
    assert chosen.disagreements == []


def test_a_long_completion_keeps_its_ends_and_says_what_is_missing():
    text = transcripts.shorten("a" * 3000 + "b" * 3000)
    assert text == f"{'a' * 2000}\n[2,000 characters not shown]\n{'b' * 2000}"
    assert transcripts.shorten("c" * 4000) == "c" * 4000


def test_without_gold_answers_nothing_is_called_right():
    completions = complete("bx", 1)
    chosen = transcripts.choose_transcripts(PROMPTS, completions, (0,), None)
    assert list(chosen.groups) == ["Drawn at random"]
    assert chosen.disagreements == []
    for transcript in chosen.groups["Drawn at random"]:
        assert transcript.answers == [("b", "b 0", None), ("x", "x 0", None)]


def test_completions_of_other_problems_are_refused():
    completions = complete("bx", 1)
    completions["x"][0].pop()
    with pytest.raises(ValueError, match="8 test problems, in their order, found 7"):
        transcripts.choose_transcripts(PROMPTS, completions, (0,), None)
