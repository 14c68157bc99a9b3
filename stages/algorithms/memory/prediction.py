"""How much memory a stage will take: the models it always holds, and the largest of its phases."""

from dataclasses import dataclass
from typing import Literal

from stages.algorithms.memory import activations
from stages.algorithms.memory.activations import FLOAT, Decoding, MicroBatch, Precision
from stages.algorithms.memory.shape import Head, Shape, adapters, parameters

Method = Literal["sft", "dpo", "reward_model", "process_reward", "ppo", "grpo"]
Scorer = Literal["none", "reward_model", "process_model", "policy"]
"""What a reward asks: nothing of a model; reward or outcome models; a process model; a judge."""
GIB = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Resident:
    """A model in memory."""

    role: Literal["policy", "reference", "value", "scorer", "reward"]
    head: Head
    trained: bool
    count: int = 1
    """Models of this kind: the members of an ensemble."""


def residents(
    method: Method, *, scorer: Scorer = "none", members: int = 1,
    value: Literal["own", "shared"] = "own",
) -> list[Resident]:  # fmt: skip
    """The models of a stage that trains.

    PPO (Ouyang et al. 2022, step 3): policy, reference, value and reward model. GRPO (Shao et al.
    2024, section 4.1) has no value model; its reference is loaded whatever the penalty, for the
    divergence is always measured. DPO has the policy alone: the reference's log-probs were stored
    by `compute_ref_logprobs`, so it is never in memory beside it. With adapters policy and
    reference are still two models. `reward_model` is the method of outcome models too; `scorer`
    is what the reward of PPO or GRPO asks, an ensemble of `members`; `value` says whether PPO's
    value model has a body of its own.
    """
    policy = Resident(role="policy", head="language_model", trained=True)
    if method in ("sft", "dpo"):
        return [policy]
    if method in ("reward_model", "process_reward"):
        head: Head = "scalar" if method == "reward_model" else "two_labels"
        return [Resident(role="reward", head=head, trained=True)]
    found = [policy, Resident(role="reference", head="language_model", trained=False)]
    if method == "ppo":
        own: Head = "scalar" if value == "own" else "scalar_alone"
        found.append(Resident(role="value", head=own, trained=True))
    heads: dict[Scorer, Head] = {
        "reward_model": "scalar", "process_model": "two_labels", "policy": "language_model",
    }  # fmt: skip
    if scorer in heads:
        found.append(Resident(role="scorer", head=heads[scorer], trained=False, count=members))
    return found


def numbers(shape: Shape, model: Resident, rank: int) -> tuple[int, int]:
    """Parameters of a resident (all its members), and those of them that are trained.

    With adapters of `rank` a trained body is frozen, and trained are they and a new head.
    """
    whole = parameters(shape, model.head)
    if not model.trained:
        return model.count * whole, 0
    if rank == 0 or model.head == "scalar_alone":
        return whole, whole
    head = {"scalar": shape.hidden, "two_labels": 2 * shape.hidden + 2}.get(model.head, 0)
    # peft keeps the head that was there beside the one that it trains.
    new = adapters(shape, rank) + head
    return whole + new, new


def states(shape: Shape, model: Resident, rank: int) -> dict[str, int]:
    """`parameters`, those `trained`, and bytes of `weights`, `gradients` and `moments`.

    All are float32 whatever `compute.dtype`: weights 4, gradients 4 and AdamW's two moments 8 bytes
    for each number that is trained (Kingma and Ba 2015; `stages/optim`), 16 in all; 4 for each that
    is not. Rajbhandari et al. 2020, "ZeRO", https://arxiv.org/abs/1910.02054, section 3.1, count 16
    too, but with weights and gradients in 16 bits beside a copy in 32.
    """
    every, trained = numbers(shape, model, rank)
    return {
        "parameters": every, "trained": trained, "weights": FLOAT * every,
        "gradients": FLOAT * trained, "moments": 2 * FLOAT * trained,
    }  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A stage that trains."""

    shape: Shape
    """Of every model: reward and value models come from the policy."""
    residents: list[Resident]
    batch: MicroBatch
    """The largest micro-batch."""
    how: Precision
    decoding: Decoding | None
    """None: nothing is sampled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """Bytes."""

    models: dict[str, dict[str, int]]
    """Role -> `parameters`, `trained`, `weights`, `gradients`, `moments`."""
    held: int
    """Weights and moments of all models: there from the first update to the end."""
    phases: dict[str, int]
    """What each phase takes besides, the gradients that are there at that time included."""

    def peak(self) -> int:
        """`held` and the largest phase."""
        return self.held + max(self.phases.values())


def predict(job: Job) -> Prediction:
    """The memory of a stage once its optimizer has made a step.

    The phases are one after the other. An update is told of a second or later micro-batch of an
    optimizer step, when gradients are whole while activations are kept too: it is the most that
    can be. PPO's value model learns before its policy, so that its gradients are there as well.
    """
    shape, rank = job.shape, job.how.rank
    models = {model.role: states(shape, model, rank) for model in job.residents}
    held = sum(model["weights"] + model["moments"] for model in models.values())
    phases: dict[str, int] = {}
    gradients = 0
    for model in reversed(job.residents):
        logits = model.head == "language_model"
        if model.trained:
            gradients += models[model.role]["gradients"]
            taken = activations.training(shape, job.batch, job.how, logits=logits)
            phases[f"update of {model.role}"] = gradients + taken
        else:
            taken = activations.reading(shape, job.batch, job.how.width, logits=logits)
            phases[f"reading by {model.role}"] = taken
    if job.decoding is not None:
        sizes = shape, job.decoding, job.how.width
        taken = activations.decoding_tensors(*sizes)
        phases["sampling"] = activations.decoding_cache(*sizes) + taken
    return Prediction(models=models, held=held, phases=phases)


def fits(peak: int, gpu_gib: float, *, share: float = 0.9) -> bool:
    """Whether `share` of a GPU's memory holds the peak.

    The rest is for the driver's context, cuBLAS' workspace and what the caching allocator cannot
    use for lack of a gap that is large enough; 0.9 is a guess that nothing here has measured.
    """
    return peak <= share * gpu_gib * GIB
