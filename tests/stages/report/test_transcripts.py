"""Which problems are shown in full."""

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


def greedy(*seeds, names="bxyz"):
    """The completions of each seed's rows of verdicts; of one seed those of RIGHT."""
    return {
        name: [
            [
                Completion(id=f"p{at}", index=0, completion_ids=[1],
                           completion=f"#### {7 if row[column] == '1' else 8}",
                           logprob_sum=0.0, finish_reason="stop", seed=0)
                for at, row in enumerate(rows)
            ]
            for rows in seeds or [RIGHT]
        ]
        for column, name in enumerate(names)
    }  # fmt: skip


def choose(monkeypatch, answers, *, drawn=0, seeds=(0,)):
    monkeypatch.setattr(transcripts, "DRAWN", drawn)
    return transcripts.choose_transcripts(PROMPTS, answers, seeds)


def places(chosen):
    return [int(transcript.prompt.id[1:]) for transcript in chosen]


def test_disagreements_are_counted_over_seeds_and_problems(monkeypatch):
    second = ["01", "01", "00", "00", "00", "11", "11", "11"]
    first = ["00", "01", "01", "01", "10", "11", "11", "11"]
    chosen = choose(monkeypatch, greedy(first, second, names="bx"), seeds=(0, 1))
    assert chosen.disagreements == [
        {"policies": "b, x", "only the first right": "1", "only the second right": "5",
         "both right": "6", "both wrong": "4"}
    ]  # fmt: skip


def test_two_policies_differ_most_where_one_is_right_with_most_seeds(monkeypatch):
    first = ["01", "01", "01", "01", "10", "11", "10", "00"]
    second = ["01", "01", "01", "00", "10", "11", "00", "10"]
    chosen = choose(monkeypatch, greedy(first, second, names="bx"), seeds=(3, 4))
    (title, shown), _ = chosen.groups.items()
    assert title == "Where x and b differ most"
    assert (set(places(shown[:3])), places(shown[3:4])) == ({0, 1, 2}, [4])
    # of the two that b alone has right with one seed, the one that is drawn, with that seed
    last = shown[4]
    seed = {6: 3, 7: 4}[int(last.prompt.id[1:])]
    assert last.reason == f"x right with 0 of 2 seeds, b with 1 of 2; here seed {seed}"
    assert [right for _, _, right in last.answers] == [True, False]


def test_a_policy_is_set_apart_from_all_others(monkeypatch):
    chosen = choose(monkeypatch, greedy())
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
        chosen = choose(monkeypatch, greedy(), drawn=4, seeds=(seed,))
        shown = [at for group in chosen.groups.values() for at in places(group)]
        assert len(set(shown)) == len(shown)
        assert len(chosen.groups["Drawn at random"]) == 4
        assert set(shown) >= {1, 2, 3, 4, 5, 6}, "nothing that sets them apart is left out"


def test_the_draw_is_of_the_seed_and_of_no_verdict(monkeypatch):
    def draw(seed, answers):
        chosen = choose(monkeypatch, answers, drawn=2, seeds=(seed,))
        return tuple(places(chosen.groups["Drawn at random"]))

    draws = [draw(seed, greedy()) for seed in range(40)]
    assert len(set(draws)) > 15
    turned = ["".join("10"[int(bit)] for bit in row) for row in RIGHT]
    assert draw(0, greedy(turned)) == draws[0]


def test_one_policy_alone_is_shown_at_random(monkeypatch):
    chosen = choose(monkeypatch, greedy(names="b"), drawn=2)
    assert list(chosen.groups) == ["Drawn at random"]
    assert chosen.disagreements == []


def test_a_long_completion_keeps_its_ends_and_says_what_is_missing():
    text = transcripts.shorten("a" * 3000 + "b" * 3000)
    assert text == f"{'a' * 2000}\n[2,000 characters not shown]\n{'b' * 2000}"
    assert transcripts.shorten("c" * 4000) == "c" * 4000


def test_another_number_of_completions_is_an_error():
    with pytest.raises(ValueError, match="zip"):
        transcripts.choose_transcripts(PROMPTS, greedy(RIGHT[:3]), (0,))
