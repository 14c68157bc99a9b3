"""Steps of a training loop, and counts of each model's passes in them, from which FLOPs follow.

A loop counts passes in the metrics of its steps, under `work/<model>/<pass>/<positions or
outputs>` (see `flops.Passes`). The passes are `sampled` (prefill and decoding), `read` (only
forward) and `trained` (forward and backward). Their sums, beside the sizes of the models, are
`work` of a metrics.json. They depend only on the inputs, not on micro-batches.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.models.batch import Batch

PREFIX = "work/"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """Optimizer step, or a rollout batch of reinforcement learning with its steps."""

    index: int
    """Number of the step, from 0."""
    metrics: dict[str, int | float]
    """Numbers of this step, named `family/name`."""
    rows: Sequence[Any] = ()
    """Records the step produced, such as rollouts."""


def count_passes(model: str, kind: str, *, positions: int, outputs: int = 0) -> dict[str, int]:
    """Passes of a model as metrics of a step.

    `positions` are the tokens of the input that it saw, `outputs` those whose logits were computed.
    """
    path = f"{PREFIX}{model}/{kind}"
    return {f"{path}/positions": positions, f"{path}/outputs": outputs}


def add_counts(metrics: dict[str, int | float], passes: Mapping[str, int]) -> None:
    """Count further passes in a step's metrics."""
    for name, count in passes.items():
        metrics[name] = metrics.get(name, 0) + count


def count_batch_passes(
    model: str, kind: str, batches: Sequence[Batch], *, times: int = 1, logits: bool = True
) -> dict[str, int]:
    """`count_passes` of the real tokens of micro-batches that the model saw `times` times."""
    positions = times * sum(batch.num_tokens for batch in batches)
    outputs = times * sum(int(batch.mask.sum()) for batch in batches) if logits else 0
    return count_passes(model, kind, positions=positions, outputs=outputs)


def count_trained(model: str, batches: Sequence[Batch], *, logits: bool = True) -> dict[str, int]:
    """`tokens/trained` and the passes of an optimizer step on these micro-batches."""
    num_tokens = sum(int(batch.mask.sum()) for batch in batches)
    passes = count_batch_passes(model, "trained", batches, logits=logits)
    return {"tokens/trained": num_tokens, **passes}


def count_sampling(
    prompts: Iterable[Sequence[int]],
    completions: Iterable[Sequence[int]],
    num_inserted: int = 0,
) -> dict[str, int]:
    """`count_passes` of sampling by the policy: reads each prompt once, and a last token never.

    `num_inserted`: tokens of environments that it read between its own.
    """
    lengths = [len(ids) for ids in completions]
    positions = sum(map(len, prompts)) + sum(lengths) - len(lengths) + num_inserted
    return count_passes("policy", "sampled", positions=positions, outputs=sum(lengths))


def count_scoring(per_completion: Mapping[str, float], num_completions: int) -> dict[str, int]:
    """`count_passes` of a reward's model, from the metrics of its components per completion."""
    names = ("scorer/positions", "judge/read_tokens")
    positions_per_completion = [per_completion[name] for name in names if name in per_completion]
    if not positions_per_completion:
        return {}
    positions = round(sum(positions_per_completion) * num_completions)
    return count_passes("scorer", "read", positions=positions)


def sum_tokens(history: Sequence[Mapping[str, int | float]]) -> dict[str, int]:
    """`generated_tokens`, and `trained_tokens` each time they went through a backward pass."""
    return {
        f"{kind}_tokens": sum(int(metrics.get(f"tokens/{kind}", 0)) for metrics in history)
        for kind in ("generated", "trained")
    }


def sum_work(
    steps: Iterable[Mapping[str, int | float]], sizes: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, Any]]:
    """`work` of a metrics.json: size of each model, and its passes over all steps.

    `sizes`: size of every model that was in memory (`models/size`), also of one without a pass.
    """
    passes_by_model: dict[str, dict[str, Any]] = {name: dict(size) for name, size in sizes.items()}
    for metrics in steps:
        for name, count in metrics.items():
            if name.startswith(PREFIX):
                model, kind, unit = name.removeprefix(PREFIX).split("/")
                total = passes_by_model[model].setdefault(kind, {"positions": 0, "outputs": 0})
                total[unit] += int(count)
    return passes_by_model


def summarise_training(
    history: Sequence[Mapping[str, int | float]], sizes: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """`tokens` and `work` of the metrics.json of a trained model; see `sum_work`."""
    return {**sum_tokens(history), "work": sum_work(history, sizes)}


def summarise_judging(tokens: Mapping[str, int], size: Mapping[str, int] | None) -> dict[str, Any]:
    """`work` of a judge's metrics.json, beside its `tokens` (`sampler.count_judge_tokens`).

    The last position of each message, whose logits decide, is not counted as an output. The size of
    an endpoint's model is unknown (None): then `work` is empty.
    """
    num_read, generated = tokens["read_tokens"], tokens["generated_tokens"]
    counts = {"read_tokens": num_read, "generated_tokens": generated}
    passes = count_passes("policy", "sampled", positions=num_read + generated, outputs=generated)
    return counts | {"work": {} if size is None else sum_work([passes], {"policy": size})}
