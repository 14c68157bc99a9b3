from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import preference_pairs

PROMPT = Prompt(id="p", task="solve", question="", prompt="q", prompt_ids=[1, 2], answer="42")


def completion(index: int, *, answer: str = "42", cut: bool = False) -> Completion:
    return Completion(
        id="p",
        index=index,
        completion=f"step {index}\n#### {answer}",
        completion_ids=[10 + index, 3],
        logprob_sum=-1.0,
        finish_reason="length" if cut else "stop",
        seed=0,
    )


def label(pool: list[Completion], max_pairs: int = 99, seed: int = 0) -> preference_pairs.Labelled:
    return preference_pairs.label(PROMPT, pool, source="verifier", max_pairs=max_pairs, seed=seed)


def pairs(pool: list[Completion], **options) -> list[tuple[int, int]]:
    """The numbers of the chosen and the rejected completion of each preference."""
    preferences = label(pool, **options).preferences
    return [(one.chosen_ids[0] - 10, one.rejected_ids[0] - 10) for one in preferences]


def test_a_pair_is_a_right_and_a_wrong_completion_with_their_tokens_as_sampled():
    (row,) = label([completion(0, answer="41"), completion(1)]).preferences
    assert (row.id, row.prompt, row.prompt_ids) == ("p", "q", [1, 2])
    assert (row.chosen, row.chosen_ids) == ("step 1\n#### 42", [11, 3])
    assert (row.rejected, row.rejected_ids) == ("step 0\n#### 41", [10, 3])
    assert (row.probability, row.source) == (1.0, "verifier")


def test_every_pair_comes_once_when_all_are_asked_for():
    pool = [completion(i, answer="42" if i < 2 else "7") for i in range(6)]
    found = pairs(pool)
    assert sorted(found) == [(i, j) for i in (0, 1) for j in (2, 3, 4, 5)]


def test_no_completion_is_repeated_before_it_must():
    pool = [completion(i, answer="42" if i < 3 else "7") for i in range(7)]
    found = pairs(pool, max_pairs=3)
    assert len({chosen for chosen, _ in found}) == 3
    assert len({rejected for _, rejected in found}) == 3


def test_pairs_depend_on_the_seed_and_on_nothing_else():
    pool = [completion(i, answer="42" if i < 4 else "7") for i in range(8)]
    assert pairs(pool, max_pairs=2, seed=5) == pairs(pool, max_pairs=2, seed=5)
    assert len({tuple(pairs(pool, max_pairs=2, seed=seed)) for seed in range(20)}) > 10


def test_a_cut_completion_is_rejected_when_wrong_and_unused_when_right():
    pool = [completion(0, cut=True), completion(1), completion(2, answer="7", cut=True)]
    assert pairs(pool) == [(1, 2)]


def test_completions_with_the_same_tokens_count_once():
    pool = [completion(0), completion(0), completion(2, answer="7"), completion(2, answer="7")]
    assert pairs(pool) == [(0, 2)]


def test_an_unreadable_completion_is_wrong():
    unreadable = completion(1, answer="")
    assert pairs([completion(0), unreadable]) == [(0, 1)]


def test_the_summary_counts_problems_by_their_fate():
    labelled = [
        label([completion(0), completion(1, answer="7"), completion(2, answer="8")]),
        label([completion(0), completion(1)]),
        label([completion(0, answer="7")]),
        label([completion(0, cut=True), completion(1, answer="7")]),
    ]
    assert preference_pairs.summarise(labelled) == {
        "problems": 4,
        "problems_with_pairs": 1,
        "problems_all_correct": 1,
        "problems_all_wrong": 1,
        "problems_right_only_cut": 1,
        "pairs": 2,
        "mean_length_chosen": 2.0,
        "mean_length_rejected": 2.0,
    }
