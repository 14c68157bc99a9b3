"""Losses on preference pairs without a reference against TRL's experimental trainers."""

from parity import ours
from parity.pairs import PAIRS, one_batch, our_step, trl_step
from tiny_checkpoints import load

from stages.algorithms.aggregation import token_mean
from stages.loops.preference import PreferencePreset, compute_pair_logprobs, compute_pair_losses
from stages.models.policy import Policy


def loss_of(**content):
    return PreferencePreset.model_validate(content)


def test_simpo(tmp_path, monkeypatch, agree):
    from trl.experimental.cpo import CPOConfig, CPOTrainer

    step = trl_step(
        CPOTrainer, CPOConfig, tmp_path, with_reference=False,
        loss_type="simpo", beta=2.0, simpo_gamma=0.6, cpo_alpha=0.0,
    )  # fmt: skip
    result = our_step(loss_of(kind="simpo", beta=2.0, gamma=0.6), monkeypatch)
    agree("SimPO", "`loops/preference.train`, one step, `loss_type` simpo", result, step.computed)


def test_cpo_without_its_likelihood_term(tmp_path, monkeypatch, agree):
    from trl.experimental.cpo import CPOConfig, CPOTrainer

    step = trl_step(CPOTrainer, CPOConfig, tmp_path, with_reference=False, beta=0.3, cpo_alpha=0.0)
    result = our_step(loss_of(kind="cpo", beta=0.3, alpha=0.0), monkeypatch)
    agree("CPO", "`loops/preference.train`, one step, `cpo_alpha` 0", result, step.computed)


def test_cpo(tmp_path, agree):
    """TRL's likelihood term weighs tokens alike, ours completions: theirs is written out here."""
    from trl.experimental.cpo import CPOConfig, CPOTrainer

    step = trl_step(CPOTrainer, CPOConfig, tmp_path, with_reference=False, beta=0.3, cpo_alpha=0.5)
    whole = likelihood([pair.prompt_ids for pair in PAIRS], [pair.chosen_ids for pair in PAIRS])
    preference = loss_of(kind="cpo", beta=0.3, alpha=0.0)

    def loss(policy):
        pairs = compute_pair_logprobs(Policy(policy), *one_batch())
        return compute_pair_losses(preference, pairs)[0].mean() + 0.5 * whole(policy)

    agree(
        "CPO",
        "`cpo_alpha` 0.5",
        ours.computed(load("llama"), step.weights, loss),
        step.computed,
        note="with TRL's likelihood term, a mean over the micro-batch's chosen tokens; "
        "ours is over completions",
    )


def test_orpo(tmp_path, agree):
    """TRL's likelihood term takes in the prompt, which ours does not."""
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer

    step = trl_step(ORPOTrainer, ORPOConfig, tmp_path, with_reference=False, beta=0.3)
    # The first token of a prompt is predicted by nothing.
    whole = likelihood(
        [pair.prompt_ids[:1] for pair in PAIRS],
        [[*pair.prompt_ids[1:], *pair.chosen_ids] for pair in PAIRS],
    )
    with_odds, without = (loss_of(kind="orpo", lam=lam) for lam in (0.3, 0.0))

    def loss(policy):
        pairs = compute_pair_logprobs(Policy(policy), *one_batch())
        return (
            compute_pair_losses(with_odds, pairs)[0] - compute_pair_losses(without, pairs)[0]
        ).mean() + whole(policy)

    agree(
        "ORPO",
        "the loss",
        ours.computed(load("llama"), step.weights, loss),
        step.computed,
        note="with TRL's likelihood term, over the prompt's tokens too; "
        "ours is over the completion's",
    )


def likelihood(prompts, completions):
    """A function: the mean of - log p over all tokens of the completions."""
    batch = ours.one_batch(prompts, completions)

    def mean(policy):
        logprobs, *_ = Policy(policy)(batch, temperature=1.0)
        return token_mean(-logprobs, batch.mask, num_tokens=int(batch.mask.sum()))

    return mean
