"""Costs as tables (Markdown): of every stage, of every policy, of the methods side by side."""

from collections.abc import Mapping, Sequence

from stages.reports import markdown, stage_costs
from stages.reports.stage_costs import StageCost

LEGEND = (
    "FLOPs are computed, not measured: 2 for each number of a model's matrices and position read "
    "or sampled, 6 where it was trained; attention's own products are left out "
    "(stages/algorithms/flops.py). Tokens trained are those of completions in a loss, each time "
    "they were; FLOPs count the prompts before them too. Peak memory is the process' largest "
    "resident size, interpreter and libraries included; grown is by how much that exceeds what it "
    "had when its work began. Seconds and memory are those of the machine that executed the stage."
)
NONE = "none"


def by_stage(costs: Mapping[str, StageCost]) -> str:
    """A row for each entry that ran."""
    header = ["entry", "seconds", "peak memory", "grown", "tokens generated", "tokens trained"]
    return markdown.table(
        [*header, "GFLOPs", "models"],
        (
            [
                entry,
                f"{cost.seconds:,.1f}",
                mebibytes(cost.peak_memory_bytes),
                mebibytes(cost.grown_memory_bytes),
                f"{cost.generated_tokens:,}",
                f"{cost.trained_tokens:,}",
                f"{stage_costs.total_flops(cost) / 1e9:,.0f}" if cost.models else NONE,
                ", ".join(cost.models) or NONE,
            ]
            for entry, cost in costs.items()
        ),
    )


def by_policy(paid: Mapping[str, Sequence[str]], costs: Mapping[str, StageCost]) -> str:
    """A row for each policy: all entries that were trained or sampled for it, together.

    Args:
        paid: policy -> its entries (`costs.paid`), the last of which made it; none where the
            baseline was made from the policy.
        costs: of every entry.
    """
    header = ["policy and its stages", "tokens generated", "tokens trained", "GFLOPs", "seconds"]
    header += ["largest peak"]
    rows = []
    for policy, entries in paid.items():
        found = stage_costs.together([costs[entry] for entry in entries])
        rows.append(
            [
                f"{policy}: {', '.join(entries) or NONE}",
                *(f"{found[name]:,}" for name in ("generated_tokens", "trained_tokens")),
                f"{found['flops'] / 1e9:,.0f}",
                f"{found['seconds']:,.1f}",
                mebibytes(found["peak_memory_bytes"]),
                resident(costs[entries[-1]]) if entries else NONE,
            ]
        )
    return markdown.table([*header, "models in memory while it was trained"], rows)


def side_by_side(made_by: Mapping[str, str], costs: Mapping[str, StageCost]) -> str:
    """The training of each policy alone, without what was made for it before.

    Args:
        made_by: policy -> the entry that trained it.
        costs: of every entry.
    """
    header = [
        "policy", "models in memory", "their weights, gradients and moments", "peak memory",
        "grown", "GPU peak", "generated / s", "trained / s", "GFLOPs",
        "MFLOPs a trained token", "GFLOP / s",
    ]  # fmt: skip
    rows = []
    for policy, entry in made_by.items():
        cost = costs[entry]
        speed, operations = stage_costs.throughput(cost), stage_costs.total_flops(cost)
        rows.append(
            [
                f"{policy} ({entry.partition('/')[0]})",
                resident(cost),
                mebibytes(stage_costs.model_bytes(cost)),
                mebibytes(cost.peak_memory_bytes),
                mebibytes(cost.grown_memory_bytes),
                mebibytes(cost.peak_gpu_memory_bytes),
                *(f"{speed[kind]:,.0f}" for kind in ("generated", "trained")),
                f"{operations / 1e9:,.0f}",
                f"{operations / max(1, cost.trained_tokens) / 1e6:,.1f}",
                f"{operations / cost.seconds / 1e9:,.1f}",
            ]
        )
    return markdown.table(header, rows)


def resident(cost: StageCost) -> str:
    """Its models with their parameters, those that are trained marked."""
    return (
        ", ".join(
            f"{role} {model.parameters / 1e6:,.2f} M{'*' if model.trained_parameters else ''}"
            for role, model in cost.models.items()
        )
        or NONE
    )


def mebibytes(size: int | None) -> str:
    """Bytes as MiB; `none` where nobody measured them."""
    return NONE if size is None else f"{size / 2**20:,.1f} MiB"


def section(
    paid: Mapping[str, Sequence[str]], made_by: Mapping[str, str], costs: Mapping[str, StageCost]
) -> str:
    """All three, with what they mean; see `by_policy` and `side_by_side`."""
    return "\n\n".join(
        [
            by_policy(paid, costs),
            "### The methods side by side",
            "The stage that trained each policy alone, in the run that made it. \\* is trained.",
            side_by_side(made_by, costs),
            "### Every stage",
            by_stage(costs),
            LEGEND,
        ]
    )
