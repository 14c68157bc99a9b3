from stages.records.pools import Completion
from stages.rewards.feedback import candidate_pairs


def pool(texts: str, cut: str = "") -> list[Completion]:
    return [
        Completion(
            id="a",
            index=index,
            completion=text,
            completion_ids=[ord(text)],
            logprob_sum=-1.0,
            finish_reason="length" if text in cut else "stop",
            seed=0,
        )
        for index, text in enumerate(texts)
    ]


def test_pairs_are_of_different_finished_texts():
    found = candidate_pairs.draw(pool("xxyzw", cut="w"), max_pairs=9, seed=1)
    assert {frozenset((a.completion, b.completion)) for a, b in found} == {
        frozenset("xy"), frozenset("xz"), frozenset("yz"),
    }  # fmt: skip
    assert {row.index for pair in found for row in pair} == {0, 2, 3}


def test_no_pair_comes_twice_and_no_more_than_asked_for():
    found = candidate_pairs.draw(pool("abcdef"), max_pairs=7, seed=3)
    assert len({frozenset((a.index, b.index)) for a, b in found}) == 7


def test_neither_position_belongs_to_the_earlier_completion():
    found = [candidate_pairs.draw(pool("ab"), max_pairs=1, seed=seed)[0] for seed in range(200)]
    assert 70 < sum(a.index == 0 for a, _ in found) < 130


def test_a_pool_of_one_text_gives_nothing_and_the_seed_decides():
    assert candidate_pairs.draw(pool("aaa"), max_pairs=3, seed=0) == []
    one = candidate_pairs.draw(pool("abcdef"), max_pairs=3, seed=0)
    assert one == candidate_pairs.draw(pool("abcdef"), max_pairs=3, seed=0)
    assert one != candidate_pairs.draw(pool("abcdef"), max_pairs=3, seed=1)
