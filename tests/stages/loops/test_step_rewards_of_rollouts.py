from dataclasses import replace

import pytest
import torch
from answers import NOTHING
from tiny_checkpoints import CPU, EOS, PAD, checkpoint, compute

from stages.loops import rl_run
from stages.loops.rollouts import Rollouts
from stages.models import process_head
from stages.models.process_head import ProcessHead, ProcessScorer
from stages.records.problems import Prompt
from stages.rewards.composition import Composition, compose
from stages.sampler import Sample

STEP, BREAK = 2, 3
PROMPTS = [
    Prompt(id=f"p{i}", task="solve", question="", prompt="", prompt_ids=ids, answer="")
    for i, ids in enumerate([[4, 5], [6]])
]
COMPLETIONS = [[7, BREAK, 8, 9, EOS], [7, EOS], [10, BREAK, 11, BREAK, EOS]]
# Of each completion, the last token of each step; the end alone is no step.
ENDS = [[1, 4], [1], [1, 4]]


def decode(token_ids):
    return "".join("\n" if i == BREAK else "" if i == EOS else chr(90 + i) for i in token_ids)


def make_scorer():
    model = process_head.init_process_model(checkpoint("llama"), STEP, compute(), CPU)
    generator = torch.Generator().manual_seed(1)
    for parameter in process_head.get_head(model).parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    return ProcessScorer(model=ProcessHead(model, compute(), PAD), decode=decode)


def drawn(order=(0, 1, 2)):
    groups = [0, 1, 0]
    return Rollouts(
        prompts=PROMPTS,
        groups=[groups[i] for i in order],
        numbers=[0] * len(order),
        samples=[
            Sample(
                token_ids=COMPLETIONS[i],
                logprobs=[0.0] * len(COMPLETIONS[i]),
                finish_reason="stop",
            )
            for i in order
        ],
        texts=[decode(COMPLETIONS[i]) for i in order],
    )


def test_each_step_is_paid_its_score_at_its_last_token_and_nothing_else_is_paid():
    scorer = make_scorer()
    judged = rl_run.of_steps(scorer, drawn())
    assert judged.totals == [0.0, 0.0, 0.0]
    assert judged.step_rewards is not None
    assert judged.step_ends is not None
    assert [row.nonzero()[:, 0].tolist() for row in judged.step_ends] == ENDS
    assert not judged.step_rewards[~judged.step_ends].any()
    # By transformers' own forward pass, a prefix at a time.
    for index, completion in enumerate(COMPLETIONS):
        row = list(PROMPTS[[0, 1, 0][index]].prompt_ids)
        start = 0
        for end in ENDS[index]:
            row += [*completion[start : end + 1], STEP]
            start = end + 1
            expected = scorer.model.model(torch.tensor([row])).logits[0, -1].softmax(-1)[1]
            found = judged.step_rewards[index, end]
            assert found.item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("credit", ["sum", "min"])
def test_a_score_that_is_no_number_is_no_reward_of_zero(credit):
    scorer = make_scorer()
    with torch.no_grad():
        scorer.model.model.get_input_embeddings().weight[11] = torch.nan
    config = {
        "value": {"kind": "process", "credit": credit, "zero": 0.0},
        "weight": 1.0,
        "cap": None,
        "normalise": {"kind": "none"},
    }
    reward = Composition.model_validate({"components": {"p": config}, "combine": {"kind": "sum"}})
    available = replace(NOTHING, scorer=lambda: rl_run.of_steps(scorer, drawn()))
    with pytest.raises(ValueError, match=r"component 'p' .*solution \d: expected finite scores"):
        compose(reward, drawn(), available)


def test_what_is_logged_is_the_mean_over_completions():
    judged = rl_run.of_steps(make_scorer(), drawn())
    assert judged.step_rewards is not None
    scores = [judged.step_rewards[i][ends].tolist() for i, ends in enumerate(ENDS)]
    assert judged.metrics == {
        # prompts of 2 and 1 tokens, 12 of completions, a step token after each of 5 steps
        "scorer/positions": pytest.approx((2 + 1 + 12 + 5) / 3),
        "process/steps": pytest.approx(5 / 3),
        "process/lowest": pytest.approx(sum(map(min, scores)) / 3),
        "process/last": pytest.approx(sum(own[-1] for own in scores) / 3),
    }


def test_the_order_of_completions_does_not_matter():
    first = rl_run.of_steps(make_scorer(), drawn())
    other = rl_run.of_steps(make_scorer(), drawn((2, 0, 1)))
    assert first.step_rewards is not None
    assert other.step_rewards is not None
    torch.testing.assert_close(other.step_rewards, first.step_rewards[[2, 0, 1]])
