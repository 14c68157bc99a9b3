from functools import partial

import pytest
import torch
from tiny_checkpoints import CPU, PAD, checkpoint, compute, load
from tiny_rollouts import decode, make_prompts, make_sampler

from stages.algorithms.ensemble import mean, mean_minus_std, minimum
from stages.loops import rl_run, rollouts
from stages.loops.rollouts import RolloutConfig
from stages.models import scalar_head


def save(path, seed):
    model = scalar_head.init_scalar_model(checkpoint("llama"), PAD, compute(), CPU, head_seed=seed)
    model.save_pretrained(path)
    return model.eval()


@pytest.fixture(scope="module")
def drawn():
    return rollouts.sample_rollouts(
        make_sampler(load("llama")),
        decode,
        make_prompts(3),
        step=0,
        seed=0,
        group_size=4,
        config=RolloutConfig(temperature=1.0, max_new_tokens=6),
    )


def plainly(models, drawn):
    """The head at the last token of each completion, a row each."""
    rows = [
        torch.tensor([[*drawn.prompt(i).prompt_ids, *sample.token_ids]])
        for i, sample in enumerate(drawn.samples)
    ]
    with torch.no_grad():
        return torch.tensor(
            [[model.score(model.base_model(row)[0])[0, -1, 0] for row in rows] for model in models]
        )


def positions(drawn):
    """Tokens a completion: each prompt once, for all of them fit one row."""
    read = sum(len(prompt.prompt_ids) for prompt in drawn.prompts)
    return (read + sum(len(sample.token_ids) for sample in drawn.samples)) / len(drawn.samples)


@pytest.mark.parametrize("aggregate", [mean, minimum, partial(mean_minus_std, k=1.0)])
@pytest.mark.parametrize("max_tokens", [4096, 20])
def test_an_ensemble_pays_the_aggregate_and_logs_how_far_its_members_disagree(
    tmp_path, drawn, aggregate, max_tokens
):
    expected = plainly([save(tmp_path / str(seed), seed) for seed in range(3)], drawn)
    settings = compute(max_tokens=max_tokens)
    models = scalar_head.load_ensemble(tmp_path, aggregate, settings, CPU)
    found = rl_run.of_model(models, drawn, settings, PAD)
    assert found.totals == pytest.approx(aggregate(expected).tolist(), abs=1e-4)
    disagreement = expected.std(0, correction=0).mean().item()
    assert found.metrics == {
        "ensemble/disagreement": pytest.approx(disagreement, abs=1e-4),
        "scorer/positions": positions(drawn),
    }


def test_a_reward_model_alone_pays_its_score_and_has_nobody_to_disagree_with(tmp_path, drawn):
    expected = plainly([save(tmp_path, 0)], drawn)
    found = rl_run.of_model(
        scalar_head.load_ensemble(tmp_path, minimum, compute(), CPU), drawn, compute(), PAD
    )
    assert found.totals == pytest.approx(expected[0].tolist(), abs=1e-4)
    assert found.metrics == {"scorer/positions": positions(drawn)}
