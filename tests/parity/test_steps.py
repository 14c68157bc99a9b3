"""One optimizer step of each loop on rows of a file, against the step of TRL's trainer.

A new loss is a row of losses.yaml, a new loop a test.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from parity import ours
from parity.reference import (
    frozen_model,
    run,
    scalar_model,
    text,
    trl_trainer,
)
from parity.rows import Computed, Row
from ruamel.yaml import YAML
from tiny_checkpoints import CPU, PAD, compute, load
from tiny_rollouts import OPTIM, make_demonstrations, make_pairs
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from stages.algorithms.aggregation import token_mean
from stages.algorithms.losses.surrogates import reinforce
from stages.algorithms.token_advantages import teacher_log_ratio
from stages.loops import kto, preference, reward, sft
from stages.loops.preference import (
    PreferenceConfig,
    PreferencePreset,
    compute_pair_logprobs,
    compute_pair_losses,
    make_pair_groups,
)
from stages.loops.ref_logprobs import sequence_logprobs_no_grad
from stages.loops.sft import SftConfig, Teacher, TeacherLoss
from stages.models.batch import micro_batches
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead
from stages.optim import OptimConfig
from stages.records.preferences import UnpairedExample

PAIRS, DEMONSTRATIONS = make_pairs(4), make_demonstrations(4)
GROUPS = make_pair_groups(PAIRS, range(len(PAIRS)))
ONE_STEP = {"per_device_train_batch_size": 4, "max_steps": 1}
PAIR_ROWS = [{"prompt": text(p.prompt_ids), "chosen": text(p.chosen_ids),
              "rejected": text(p.rejected_ids)} for p in PAIRS]  # fmt: skip
SETTINGS = {"num_epochs": 1, "batch_size": 4, "optim": OptimConfig(**OPTIM)}
STEP = "one step"


LOSSES = YAML(typ="safe").load(Path(__file__).with_name("losses.yaml"))["pairs"]


def read_reference() -> tuple[Any, Tensor]:
    """Every pair in one micro-batch, and the reference's log-probs of them."""
    (batch,) = micro_batches(GROUPS, compute(), PAD, CPU)
    logprobs = sequence_logprobs_no_grad(Policy(load("llama", 1), compute(), PAD), GROUPS)
    return batch, logprobs.view(-1, 2)


@pytest.mark.parametrize("row", LOSSES, ids=lambda row: f"{row['method']} {row['compared']}")
def test_a_loss_on_pairs_is_that_of_trl(row, tmp_path, monkeypatch, agree):
    more = {} if "trainer" in row else frozen_model(1)
    trainer = trl_trainer(row.get("trainer", "DPO"), tmp_path, PAIR_ROWS, load("llama", 0),
                          ONE_STEP | row["settings"], **more)  # fmt: skip
    (step,), preset = run(trainer), PreferencePreset.model_validate(row["preset"])
    shown = Row(row["method"], row["compared"], row.get("note", ""))
    weight, skipped = row.get("likelihood", (0.0, None))
    if not weight:
        model = load("llama", 0)
        seen = ours.watch(monkeypatch, preference, model)
        config = PreferenceConfig(**SETTINGS, num_checkpoints=0)
        _, reference = read_reference()
        policy = Policy(model, compute(), PAD)
        (taken,) = preference.train(policy, PAIRS, reference, [range(4)], preset, config)
        result = Computed(loss=taken.metrics["loss/preference"], gradients=seen[0])
        agree(shown, result, step.computed)
        return
    batch = ours.one_batch([pair.prompt_ids[:skipped] for pair in PAIRS],
                           [[*(pair.prompt_ids[skipped:] if skipped else ()), *pair.chosen_ids]
                            for pair in PAIRS])  # fmt: skip

    def loss(policy):
        pairs = compute_pair_logprobs(Policy(policy), *read_reference())
        losses = compute_pair_losses(preset, pairs)[0]
        if preset.kind == "orpo":  # without our likelihood term
            losses = losses - compute_pair_losses(preset.model_copy(update={"lam": 0.0}), pairs)[0]
        logprobs, *_ = Policy(policy)(batch, temperature=1.0)
        number = int(batch.mask.sum())
        return losses.mean() - weight * token_mean(logprobs, batch.mask, num_tokens=number)

    agree(shown, ours.computed(load("llama"), step.weights, loss), step.computed)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_a_step_of_sft_is_that_of_trl(micro_batches, tmp_path, monkeypatch, agree):
    rows = [{"prompt": text(r.prompt_ids), "completion": text(r.completion_ids)}
            for r in DEMONSTRATIONS]  # fmt: skip
    split = {"per_device_train_batch_size": 4 // micro_batches,
             "gradient_accumulation_steps": micro_batches}  # fmt: skip
    (step,) = run(trl_trainer("SFT", tmp_path, rows, load("llama"), ONE_STEP | split))
    model = load("llama")
    seen = ours.watch(monkeypatch, sft, model)
    policy = Policy(model, compute(), PAD)
    (taken,) = sft.train(policy, DEMONSTRATIONS, [range(4)], SftConfig(**SETTINGS))
    result = Computed(loss=taken.metrics["loss/nll"], gradients=seen[0])
    more = ", 2 micro-batches" if micro_batches == 2 else ""
    agree(Row("SFT", f"`loops/sft.train`, {STEP}{more}"), result, step.computed)
    assert sum(int((b["labels"] != -100).sum()) for b in step.batches) == sum(
        len(row.completion_ids) for row in DEMONSTRATIONS
    )


@pytest.mark.parametrize("centring", [0.0, 0.01])
def test_a_step_of_a_reward_model_is_that_of_trl(centring, tmp_path, monkeypatch, agree):
    rows = [{"chosen_ids": [*pair.prompt_ids, *pair.chosen_ids],
             "rejected_ids": [*pair.prompt_ids, *pair.rejected_ids]} for pair in PAIRS]  # fmt: skip
    more = {"center_rewards_coefficient": centring or None}
    (step,) = run(trl_trainer("Reward", tmp_path, rows, scalar_model(0), ONE_STEP | more))
    model = scalar_model(0)
    seen = ours.watch(monkeypatch, reward, model)
    config = reward.RewardConfig(**SETTINGS, centring=centring, margin=0.0)
    (taken,) = reward.train(ScalarHead(model, compute(), PAD), PAIRS, [range(4)], config)
    result = Computed(loss=taken.metrics["loss/bradley_terry"], gradients=seen[0])
    compared = f"`loops/reward.train`, {STEP}" + (f", centring {centring}" if centring else "")
    agree(Row("reward model", compared), result, step.computed)


KTO_ROWS = [
    (pair.prompt_ids, ids, desirable)
    for pair in make_pairs(3)
    for ids, desirable in ((pair.chosen_ids, True), (pair.rejected_ids, False))
]


def split_rows(batch: dict[str, Any], prefix: str) -> tuple[list[list[int]], list[list[int]]]:
    """Prompts and completions of a batch of TRL's KTO, without padding."""
    names = (f"{prefix}input_ids", f"{prefix}attention_mask", f"{prefix}completion_mask")
    prompts, completions = [], []
    for ids, real, completion in zip(*(batch[name] for name in names), strict=True):
        prompts.append(ids[real.bool() & ~completion.bool()].tolist())
        completions.append(ids[completion.bool()].tolist())
    return prompts, completions


@pytest.mark.parametrize(("policy_seed", "reference_seed"), [(0, 1), (1, 0)])
def test_a_step_of_kto_is_that_of_trl(policy_seed, reference_seed, tmp_path, monkeypatch, agree):
    weights = {"desirable_weight": 1.2, "undesirable_weight": 0.8, "beta": 0.3}
    rows = [{"prompt": text(prompt), "completion": text(ids), "label": desirable}
            for prompt, ids, desirable in KTO_ROWS]  # fmt: skip
    settings = ONE_STEP | weights | {"per_device_train_batch_size": len(KTO_ROWS)}
    (step,) = run(trl_trainer("KTO", tmp_path, rows, load("llama", policy_seed), settings,
                              **frozen_model(reference_seed)))  # fmt: skip
    (inputs,) = step.batches
    examples = [
        UnpairedExample(id=str(i), prompt_ids=prompt, completion_ids=ids, desirable=bool(desirable))
        for i, (prompt, ids, desirable) in enumerate(
            zip(*split_rows(inputs, ""), inputs["label"], strict=True)
        )
    ]
    # Read backwards, the completion after a row is the one before it, which TRL takes.
    schedule = [list(reversed(range(len(examples))))]
    groups = kto.make_mismatched_groups(examples, schedule[0])
    assert split_rows(inputs, "KL_") == (
        [group.prompt_ids for group in reversed(groups)],
        [group.completions[0] for group in reversed(groups)],
    )
    frozen = Policy(load("llama", reference_seed), compute(), PAD)
    reference = kto.compute_reference(frozen, examples, schedule)
    model = load("llama", policy_seed)
    seen = ours.watch(monkeypatch, kto, model)
    config = PreferenceConfig(**SETTINGS | {"batch_size": len(examples)}, num_checkpoints=0)
    loss = PreferencePreset.model_validate({"kind": "kto", **weights})
    policy = Policy(model, compute(), PAD)
    (taken,) = kto.train(policy, examples, reference, schedule, loss, config)
    point = taken.metrics["kl/reference_point"]
    # The two cases are each other's mirror image: an estimate below 0 counts as 0.
    assert (point == 0) == (policy_seed == 0)
    row = Row(
        "KTO",
        f"`loops/kto.train`, {STEP}, reference point {'above' if point else 'clamped to'} 0",
        "TRL mismatches a prompt with the completion before it, ours with the one after it, and "
        "not where both are of one problem",
    )
    agree(row, Computed(loss=taken.metrics["loss/preference"], gradients=seen[0]), step.computed)


TEMPERATURE, NUM_DRAWS = 0.7, 64


def test_the_mean_advantage_of_opd_is_the_reverse_divergence_of_gkd(agree):
    """On policy, TRL sums over the vocabulary; ours has the sampled token alone. Each token is
    drawn here as often as the student does, so the mean over draws is the expectation, exactly."""
    from trl.experimental.gkd import GKDTrainer

    generator = torch.Generator().manual_seed(0)
    # Five positions; the last one does not count.
    counts = torch.multinomial(torch.ones(5, 6), NUM_DRAWS - 6, replacement=True,
                               generator=generator)  # fmt: skip
    drawn = torch.cat([counts, torch.arange(6).expand(5, 6)], 1).T  # each token once at least
    shares = torch.nn.functional.one_hot(drawn, 6).float().mean(0)
    student = (TEMPERATURE * shares.log())[None].requires_grad_()
    teacher = torch.randn(1, 5, 6, generator=generator)
    labels = torch.tensor([[0, 0, 0, 0, -100]])
    loss = GKDTrainer.generalized_jsd_loss(
        student, teacher, labels=labels, beta=1.0, temperature=TEMPERATURE
    )
    (expected,) = torch.autograd.grad(loss, student)
    logprobs, teacher_logprobs = (
        (logits[0] / TEMPERATURE).log_softmax(-1)[torch.arange(5), drawn]
        for logits in (student, teacher)
    )
    mask = (labels != -100).expand(NUM_DRAWS, 5)
    advantages = teacher_log_ratio(logprobs, teacher_logprobs, mask)
    losses, _ = reinforce(logprobs, advantages, mask)
    number = int(mask.sum())
    (actual,) = torch.autograd.grad(token_mean(losses, mask, num_tokens=number), student)
    row = Row("OPD", "`generalized_jsd_loss` with `beta` 1, draws in proportion",
              "TRL's `beta` 1 is KL(student, teacher), 0 is KL(teacher, student)")  # fmt: skip
    agree(row, Computed(loss=(-advantages.sum() / number).item(), gradients={"": actual}),
          Computed(loss=loss.item(), gradients={"": expected}))  # fmt: skip


@pytest.mark.parametrize("temperature", [1.0, TEMPERATURE])
def test_a_step_towards_a_teacher_is_the_forward_divergence_of_gkd(temperature, monkeypatch, agree):
    """Off policy (`lmbda` 0), both sum over the vocabulary."""
    from trl.experimental.gkd import GKDTrainer

    rows, model, other = DEMONSTRATIONS, load("llama"), load("llama", 1)
    texts = [torch.tensor([*row.prompt_ids, *row.completion_ids]) for row in rows]
    ids, labels = (pad_sequence(texts, batch_first=True, padding_value=v) for v in (PAD, -100))
    for row, of_row in zip(rows, labels, strict=True):
        of_row[: len(row.prompt_ids)] = -100

    def divergence(student):
        with torch.no_grad():
            target = other(input_ids=ids).logits
        return GKDTrainer.generalized_jsd_loss(
            student(input_ids=ids).logits[:, :-1], target[:, :-1], labels=labels[:, 1:], beta=0.0,
            temperature=temperature,
        )  # fmt: skip

    theirs = ours.computed(load("llama"), model.state_dict(), divergence)
    seen = ours.watch(monkeypatch, sft, model)
    policy, frozen = (Policy(item, compute(max_tokens=40), PAD) for item in (model, other))
    teacher = Teacher(policy=frozen, loss=TeacherLoss(temperature=temperature, likelihood_coef=0.0))
    (taken,) = sft.train(policy, rows, [range(4)], SftConfig(**SETTINGS), teacher=teacher)
    row = Row(
        "forward KL",
        f"`loops/sft.train`, {STEP}, `generalized_jsd_loss` with `beta` 0, T {temperature}",
        "TRL's GKD with `lmbda` 0; no factor T^2 in either",
    )
    agree(row, Computed(loss=taken.metrics["loss/forward_kl"], gradients=seen[0]), theirs)
