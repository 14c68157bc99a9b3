"""What a stage will take of memory, in words and numbers (Markdown)."""

from collections.abc import Mapping

from stages.algorithms.memory.prediction import FLOAT, GIB, Job, Prediction, fits, predict
from stages.studies import markdown

FORMULAS = """\
In memory all the time: weights 4 bytes a parameter (float32, whatever the precision of products)
and AdamW's two moments, 8 bytes a trained parameter. In an update besides: gradients, 4 bytes a
trained parameter, and activations (stages/algorithms/memory/activations.py: tensor by tensor).
Sampling: keys and values, 2 x layers x completions x (prompt + new tokens) x key width x bytes of
a number, and four grids of completions x vocabulary. The peak is what is always there and the
largest phase, for completions as long as they may be. Measured on CPU against live tensor bytes
(tests/stages/algorithms/memory): weights, gradients and moments exactly; what an update takes
besides weights and moments within 6 per cent, with blocks recomputed 10, in bfloat16 as well 25;
sampling within 25. Not measured: what a GPU's kernels, its driver and the allocator's gaps take
besides; a tenth of the GPU is left to them, which is a guess."""


def one(job: Job, gpu_gib: float) -> str:
    """All numbers of one stage."""
    found = predict(job)
    header = ["model", "parameters", "trained", "weights", "moments", "gradients in an update"]
    models = markdown.table(
        header,
        (
            [
                role,
                *(f"{sizes[name]:,}" for name in ("parameters", "trained")),
                *(gib(sizes[name]) for name in ("weights", "moments", "gradients")),
            ]
            for role, sizes in found.models.items()
        ),
    )
    phases = markdown.table(
        ["phase", "besides weights and moments", "with them"],
        ([name, gib(size), gib(found.held + size)] for name, size in found.phases.items()),
    )
    batch = job.batch
    sizes = (
        f"Largest micro-batch: {batch.positions:,} positions, {batch.outputs:,} of them with "
        f"logits, rows of {batch.row:,}; products in {8 * job.how.width} bits"
        f"{', blocks recomputed' if job.how.checkpointing else ''}"
        f"{f', adapters of rank {job.how.rank}' if job.how.rank else ''}."
    )
    return "\n\n".join([models, sizes, phases, verdict(found, gpu_gib), FORMULAS])


def all_stages(jobs: Mapping[str, Job], gpu_gib: float) -> str:
    """A row for each stage of a plan."""
    header = ["stage", "models", "weights and moments", "largest phase", "peak", "fits"]
    rows = []
    for name, job in jobs.items():
        found = predict(job)
        largest = max(found.phases, key=lambda phase: found.phases[phase])
        rows.append(
            [
                name,
                ", ".join(found.models),
                gib(found.held),
                f"{largest}: {gib(found.phases[largest])}",
                gib(found.peak()),
                "yes" if fits(found.peak(), gpu_gib) else "**no**",
            ]
        )
    return "\n\n".join([markdown.table(header, rows), f"Of a GPU of {gpu_gib:g} GiB.", FORMULAS])


def verdict(found: Prediction, gpu_gib: float) -> str:
    """Whether it fits, and what always has to."""
    answer = "fits" if fits(found.peak(), gpu_gib) else "does not fit"
    trained = FLOAT * sum(model["trained"] for model in found.models.values())
    return (
        f"**Peak {gib(found.peak())}: {answer} in {gpu_gib:g} GiB.** Without any activation "
        f"{gib(found.held + trained)}."
    )


def gib(size: int) -> str:
    """Bytes as GiB, or as MiB where that is not much."""
    return f"{size / GIB:,.2f} GiB" if size >= GIB / 10 else f"{size / 2**20:,.1f} MiB"
