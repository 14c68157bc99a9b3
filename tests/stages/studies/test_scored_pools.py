from tiny_checkpoints import CPU, PAD, compute

from stages.models.ensemble import Scores
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.studies import scored_pools

PROMPT = Prompt(id="a", task="solve", question="", prompt="", prompt_ids=[3, 4], answer="7")


class Sums:
    """Scores a completion by the sum of its tokens, and counts what it reads."""

    def __init__(self):
        self.read = 0

    def __call__(self, batch):
        self.read += len(batch.indices)
        values = (batch.token_ids * batch.mask).sum(1) / 3
        return Scores(values=values, disagreement=values)


def completion(index, ids, text):
    return Completion(
        id="a", index=index, completion=text, completion_ids=ids, logprob_sum=0.0,
        finish_reason="stop", seed=0,
    )  # fmt: skip


def test_by_hand():
    # the same text from other tokens is another completion
    pool = [
        completion(0, [5, 6], "#### 7"),
        completion(1, [8], "#### 8"),
        completion(2, [5, 6], "#### 7"),
        completion(3, [11, 1], "#### 7"),
    ]
    for row_tokens in (0, 64):
        scorer = Sums()
        found = scored_pools.score(
            PROMPT, pool, (scorer, None), compute(row_tokens=row_tokens), PAD, CPU
        )
        assert found.correct == [True, False, True, True]
        assert found.reward_model == [3.66667, 2.66667, 3.66667, 4.0]
        assert found.ensemble is None
        assert found.num_distinct == scorer.read == 3
