r"""Label the steps of a policy's solutions by completing them.

    python -m stages.label_steps <name> <pool> <policy> <split>

Reads a pool of completions of a split's problems; splits some of each problem's into steps
and has the policy complete every prefix of steps K times. A step is labelled by how many of
the completions reach the right answer: Wang et al., "Math-Shepherd" (2024), eq. 3 and 4,
https://arxiv.org/abs/2312.08935; departures: `rewards/monte_carlo_labels`. Writes the labels
(`steps.jsonl`), the counts behind them (`prefixes.jsonl`, of which both kinds of labels can be
made) and, where the truth is known, how right they are at every K (`metrics.json`, `plots/`).
With `num_completions: 0` nothing is sampled, and the labels are the truth.

What a kill interrupts goes on where it stopped: the counts of finished parts are kept.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from stages import params
from stages.engines import samplers
from stages.engines.samplers import EngineName
from stages.loops import step_labels
from stages.loops.step_labels import Prefix, StepLabelsConfig
from stages.models import policy
from stages.models import start as models_start
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig
from stages.params import Params
from stages.records import lines, pools
from stages.records.completion import Completion
from stages.records.prefix_count import PrefixCount
from stages.records.prompt import Prompt
from stages.reports import step_label_plot, step_label_summary
from stages.reports.step_label_audit import AuditConfig
from stages.rewards import monte_carlo_labels, step_solutions
from stages.runtime import outputs, progress, runs
from stages.seeding import derive

TABLES = ("label_steps",)
PROMPTS = Path("data/prepare_data/prompts")
POOLS = Path("data/sample_candidates")
OUTPUT = Path("data/label_steps")


class LabelSteps(StepLabelsConfig):
    """How a split's solutions are labelled, and the labels audited."""

    audit: AuditConfig


class Config(Params):
    """What label_steps reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    model: ModelConfig
    engine: EngineName
    label_steps: LabelSteps


def main(name: str, pool_name: str, start: str, split: str) -> None:
    """Write `steps.jsonl`, `prefixes.jsonl`, `plots/` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"label_steps@{name}", output, gpu=True) as run:
        config = params.load(Config, pick={"label_steps": split})
        settings = config.label_steps
        decode = policy.decoder(models_start.tokenizer(start))
        problems = pools.by_problem(
            lines.read(PROMPTS / f"{split}.jsonl", Prompt),
            lines.read(POOLS / pool_name / "pool.jsonl", Completion),
        )[: settings.num_problems]
        solutions = step_solutions.choose(
            problems,
            decode,
            separator=settings.separator,
            max_per_problem=settings.max_solutions_per_problem,
        )
        parts = step_labels.chunks(
            (one.prompt, prefix) for one in solutions for prefix in one.prefixes()
        )
        if settings.num_completions:
            counts = count(run, config, start, parts, decode)
            labelled = monte_carlo_labels.estimated(solutions, counts, settings.label)
        else:
            counts, labelled = [], monte_carlo_labels.known(solutions)
        metrics = step_label_summary.summarise(
            [(one.row, one.counts) for one in labelled],
            settings.audit,
            num_cut=sum(row.finish_reason == "length" for _, pool in problems for row in pool),
            seed=derive(config.seed, "label_steps", "bootstrap"),
        )
        with outputs.replace(output / "steps.jsonl") as temporary:
            lines.write(temporary, (one.row for one in labelled))
        with outputs.replace(output / "prefixes.jsonl") as temporary:
            lines.write(temporary, counts)
        with outputs.replace(output / "plots") as temporary:
            step_label_plot.write(
                temporary, metrics["audit"], step_label_summary.tokens_by_size(metrics)
            )
        with outputs.replace(output / "metrics.json") as temporary:
            temporary.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")


def count(
    run: runs.Run,
    config: Config,
    start: str,
    parts: list[list[Prefix]],
    decode: Callable[[Sequence[int]], str],
) -> list[PrefixCount]:
    """Count all parts, taking over those that an interrupted attempt at the same inputs kept."""
    settings, folder = config.label_steps, run.folder / "parts"
    counts: list[PrefixCount] = []
    kept = sorted(folder.glob("*.jsonl"))
    for index, path in enumerate(kept):
        rows = list(lines.read(path, PrefixCount))
        run.log(index, step_labels.metrics(rows))
        counts += rows
    longest = max(
        (len(one.prompt_ids) + len(ids) for part in parts for one, ids in part), default=0
    )
    sampler = samplers.load(
        config.engine,
        start,
        model=config.model,
        compute=config.compute,
        max_length=longest + settings.max_new_tokens,
    )
    steps = step_labels.count(sampler, decode, parts, settings, config.seed, start=len(kept))
    for step in progress.track(steps, total=len(parts) - len(kept), label="label_steps"):
        with outputs.replace(folder / f"{step.index:06d}.jsonl") as temporary:
            lines.write(temporary, step.rows)
        run.log(step.index, step.metrics)
        counts += step.rows
    return counts


if __name__ == "__main__":
    main(*sys.argv[1:])
