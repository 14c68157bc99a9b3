"""What one entry of a stage cost: time, memory, tokens, operations, and the models it held.

Tokens and operations come from its metrics.json and are the same wherever it runs; seconds and
memory from its run record, `run/run.json`, and are those of the machine that executed it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stages.algorithms import flops
from stages.algorithms.flops import Matrices, Passes

FLOAT = 4
"""Bytes of a weight, gradient or moment: all are float32 (`stages/models/policy`)."""
PASSES = ("sampled", "read", "trained")


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A model that was in memory."""

    parameters: int
    """Of an ensemble, of all its members."""
    trained_parameters: int
    sampled: int
    """Positions that went through it while it sampled, prompts included."""
    read: int
    """Positions that it read without learning."""
    trained: int
    """Positions that went forward and backward, each time they did."""
    flops: int
    """Operations of all three (`algorithms/flops`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageCost:
    """Of one entry."""

    seconds: float
    """Of work, without the start of the process."""
    peak_memory_bytes: int | None
    """The process' largest resident size, the interpreter and its libraries included; None where
    the kernel does not tell."""
    grown_memory_bytes: int | None
    """By how much that is more than when its work began."""
    peak_gpu_memory_bytes: int | None
    """The most that tensors took of a GPU; None where none was used."""
    generated_tokens: int
    trained_tokens: int
    """Completion tokens in a loss; `Model.trained` has the prompts too."""
    models: dict[str, Model]
    """By role; empty where no model of ours computed."""


def read(metrics: Mapping[str, Any], record: Mapping[str, Any]) -> StageCost:
    """The cost of an entry.

    Args:
        metrics: its metrics.json; `work` is there where a model computed.
        record: its run/run.json.
    """
    peak, start = record.get("peak_memory_bytes"), record.get("memory_at_start_bytes")
    return StageCost(
        seconds=record["seconds"],
        peak_memory_bytes=peak,
        grown_memory_bytes=None if peak is None or start is None else peak - start,
        peak_gpu_memory_bytes=record.get("peak_gpu_memory_bytes"),
        generated_tokens=metrics.get("generated_tokens", 0),
        trained_tokens=metrics.get("trained_tokens", 0),
        models={role: _model(done) for role, done in metrics.get("work", {}).items()},
    )


def _model(done: Mapping[str, Any]) -> Model:
    names = ("body", "output", "trained_body", "trained_output")
    matrices = Matrices(**{name: done[name] for name in names})
    none = {"positions": 0, "outputs": 0}
    passes = {kind: Passes(**done.get(kind, none)) for kind in PASSES}
    forward = flops.read(matrices, passes["sampled"]) + flops.read(matrices, passes["read"])
    return Model(
        parameters=done["parameters"],
        trained_parameters=done["trained_parameters"],
        **{kind: one.positions for kind, one in passes.items()},
        flops=forward + flops.trained(matrices, passes["trained"]),
    )


def total_flops(cost: StageCost) -> int:
    """Operations of all its models."""
    return sum(model.flops for model in cost.models.values())


def model_bytes(cost: StageCost) -> int:
    """Bytes of all weights, and of gradients and two moments of those that are trained.

    4 a parameter and 12 more a trained one: what the models took before any activation.
    """
    weights = sum(model.parameters for model in cost.models.values())
    trained = sum(model.trained_parameters for model in cost.models.values())
    return FLOAT * weights + 3 * FLOAT * trained


def throughput(cost: StageCost) -> dict[str, float]:
    """`generated` and `trained` tokens a second of the whole stage, loading included."""
    return {
        kind: getattr(cost, f"{kind}_tokens") / cost.seconds for kind in ("generated", "trained")
    }


def together(costs: Sequence[StageCost]) -> dict[str, Any]:
    """Sums over several entries, and the largest of their peaks."""
    peaks = [cost.peak_memory_bytes for cost in costs if cost.peak_memory_bytes is not None]
    return {
        "generated_tokens": sum(cost.generated_tokens for cost in costs),
        "trained_tokens": sum(cost.trained_tokens for cost in costs),
        "flops": sum(total_flops(cost) for cost in costs),
        "seconds": round(sum(cost.seconds for cost in costs), 1),
        "peak_memory_bytes": max(peaks, default=None),
    }


def entry(cost: StageCost) -> dict[str, Any]:
    """One entry in the `stage_costs` of `data/compare_policies/metrics.json`."""
    return asdict(cost) | {"flops": total_flops(cost), "model_bytes": model_bytes(cost)}
