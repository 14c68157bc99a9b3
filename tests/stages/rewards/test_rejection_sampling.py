from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import rejection_sampling

PROMPT = Prompt(id="a", task="solve", question="q", prompt="Q", prompt_ids=[1], answer="4")


def completion(index: int, answer: str, ids: list[int], reason: str = "stop") -> Completion:
    return Completion(
        id="a",
        index=index,
        completion=f"#### {answer}",
        completion_ids=ids,
        logprob_sum=0.0,
        finish_reason=reason,
        seed=0,
    )


def kept(pool: list[Completion], max_kept: int = 9, seed: int = 0) -> list[list[int]]:
    rows = rejection_sampling.select(PROMPT, pool, max_kept=max_kept, seed=seed)
    assert all((row.id, row.prompt, row.prompt_ids) == ("a", "Q", [1]) for row in rows)
    return [row.completion_ids for row in rows]


def test_right_distinct_completions_that_ended_are_kept():
    pool = [
        completion(0, "4", [10]),
        completion(1, "5", [11]),
        completion(2, "4", [12], "length"),
        completion(3, "4", [10]),
        completion(4, "4", [13]),
    ]
    assert kept(pool) == [[10], [13]]


def test_of_many_so_many_are_drawn_in_the_order_of_the_pool():
    pool = [completion(index, "4", [index]) for index in range(6)]
    draws = {tuple(ids for (ids,) in kept(pool, 2, seed)) for seed in range(20)}
    assert all(len(draw) == 2 and draw[0] < draw[1] for draw in draws)
    assert len(draws) > 3
    assert kept(pool, 2, 0) == kept(pool, 2, 0)


def test_the_summary_counts_problems_and_the_share_of_all_completions():
    row = rejection_sampling.select(PROMPT, [completion(0, "4", [2])], max_kept=1, seed=0)[0]
    assert rejection_sampling.summarise([[row, row], []], 8) == {
        "problems": 2,
        "problems_with_any": 1,
        "kept": 2,
        "share": 0.25,
    }
