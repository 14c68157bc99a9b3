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

from collections.abc import Iterator
from pathlib import Path

from stages import params
from stages.engines import samplers
from stages.engines.samplers import EngineName
from stages.loops import step_label_work, step_labels
from stages.loops.step import Step
from stages.loops.step_labels import Decode, Parts, StepLabelsConfig
from stages.models import policy
from stages.models import start as models_start
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig
from stages.params import Params
from stages.records import lines, pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.records.steps import PrefixCount
from stages.reports import step_label_plot, step_label_summary
from stages.reports.step_label_audit import AuditConfig
from stages.rewards import monte_carlo_labels, step_solutions
from stages.runtime import kept_parts, outputs, process, progress, runs
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
        prompts = lines.read(PROMPTS / f"{split}.jsonl", Prompt)
        pool = lines.read(POOLS / pool_name / "pool.jsonl", Completion)
        problems = pools.by_problem(prompts, pool)[: settings.num_problems]
        solutions = step_solutions.choose(
            problems, decode, settings.separator, settings.max_solutions_per_problem
        )
        counts: list[PrefixCount] = []
        parts = step_labels.chunks(step_solutions.prefixes(solutions))
        if settings.num_completions:
            steps = count(run.folder / "parts", config, start, parts, decode)
            for step in progress.track(steps, total=len(parts), label=f"label {name}"):
                run.log(step.index, step.metrics)
                counts += step.rows
            labelled = monte_carlo_labels.estimated(solutions, counts, settings.label)
        else:
            labelled = monte_carlo_labels.known(solutions)
        metrics = step_label_summary.summarise(
            labelled,
            settings.audit,
            num_cut=sum(row.finish_reason == "length" for _, rows in problems for row in rows),
            seed=derive(config.seed, "label_steps", "bootstrap"),
        )
        metrics["work"] = step_label_work.summary(parts, counts, start, config.model)
        for file, rows in {"steps": [row for row, _ in labelled], "prefixes": counts}.items():
            with outputs.replace(output / f"{file}.jsonl") as temporary:
                lines.write(temporary, rows)
        with outputs.replace(output / "plots") as temporary:
            step_label_plot.write(temporary, metrics)
        outputs.write_json(output / "metrics.json", metrics)


def count(kept: Path, config: Config, start: str, parts: Parts, decode: Decode) -> Iterator[Step]:
    """The counts of all parts; those that were counted before an interruption are in `kept`."""

    def work(first: int) -> Iterator[Step]:
        settings, shared = config.label_steps, {"model": config.model, "compute": config.compute}
        length = step_labels.longest(parts, settings.max_new_tokens)
        sampler = samplers.load(config.engine, start, **shared, max_length=length)
        return step_labels.count(sampler, decode, parts, settings, config.seed, start=first)

    return kept_parts.go_on(kept, work, write=step_labels.write, read=step_labels.read)


if __name__ == "__main__":
    process.run(main)
