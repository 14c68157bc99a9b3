r"""Step labels of a policy's solutions, from completions of their prefixes.

    python -m stages steps_completions <steps> --by completions --preset .. --from <policy> \
        --on pools/<pool>

Splits solutions of each problem of a pool into steps. The policy `from` completes every prefix of
steps K times, and the number of right completions labels the prefix's last step: Wang et al.,
"Math-Shepherd" (2024), eq. 3 and 4, https://arxiv.org/abs/2312.08935; departures:
`rewards/step_solutions`. Writes the labels of problems to learn from (`train.jsonl`) and of dev
problems (`heldout.jsonl`, with their other solutions, unlabelled, to choose among), the counts
(`prefixes.jsonl`, which give both kinds of labels), and, if the truth is known, the accuracy of the
labels at every K (`metrics.json`). With `num_completions: 0` nothing is sampled, and the labels are
the truth.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from stages import stage
from stages.engines.loading import SamplingConfig
from stages.loops import step_labels
from stages.loops.run import Run
from stages.loops.step_labels import Decode, Parts, StepLabelsConfig
from stages.loops.work import Step
from stages.models import model_tokenizer, row_policy, size
from stages.records import pools
from stages.records.pools import Completion
from stages.records.steps import PrefixCount
from stages.report import step_label_quality
from stages.report.step_label_quality import AuditConfig
from stages.rewards import step_solutions
from stages.rewards.step_solutions import Problems
from stages.seeding import derive_seed


class CompletionsPreset(StepLabelsConfig):
    """Labelling of solutions, and the audit of the labels."""

    audit: AuditConfig


class Config(SamplingConfig):
    """Keys of params.yaml that steps_completions reads, and its preset."""

    preset: CompletionsPreset


def main(*words: str) -> None:
    """Write `train.jsonl`, `heldout.jsonl`, `prefixes.jsonl` and `metrics.json` of each seed."""
    stage.run(label, words, Config, gpu=True)


def label(run: Run) -> dict[str, Any]:
    """Write the labelled steps of one seed; returns their metrics."""
    row, preset = run.row, run.config.preset
    seed = derive_seed(run.seed, "steps_completions", "bootstrap")
    decode = model_tokenizer.make_decode(row_policy.load_row_tokenizer(row.policy, run.seed))
    pool = {side: pools.read_pools(row.source, run.seed, side) for side in pools.SIDES}
    numbers = {"train": preset.num_problems, "heldout": preset.num_heldout_problems}
    problems = {side: pool[side][:number] for side, number in numbers.items()}
    solutions = {
        side: step_solutions.choose_solutions(
            side_problems, decode, preset.separator, preset.max_solutions_per_problem
        )
        for side, side_problems in problems.items()
    }
    parts = step_labels.chunk_prefixes(step_solutions.solution_prefixes(chain(*solutions.values())))
    # A prefix is part of a completion within the pool's length limit.
    completions = list_completions(chain(*pool.values()))
    limit = max(len(completion.completion_ids) for completion in completions)
    counts = list(count(run, parts, limit, decode)) if preset.num_completions else None
    metrics: dict[str, Any] = {}
    for side, side_solutions in solutions.items():
        labelled = step_solutions.label_solutions(side_solutions, counts, preset.label)
        rows = [labelled_row for labelled_row, _ in labelled]
        if side == "heldout":
            whole = step_solutions.finished_solutions(pool[side], decode, preset.separator)
            rows += step_solutions.unlabelled_rows(whole, rows)
        run.write(f"{side}.jsonl", rows)
        completions = list_completions(problems[side])
        num_cut = sum(completion.finish_reason == "length" for completion in completions)
        metrics[side] = step_label_quality.summarise_labels(
            labelled, preset.audit, num_cut=num_cut, seed=seed
        )
    run.write("prefixes.jsonl", counts or [])
    measured = size.measure_policy(row.policy, run.seed, run.config.model)
    metrics |= step_labels.summarise_passes(parts, counts or [], measured)
    return metrics


def list_completions(problems: Problems) -> list[Completion]:
    """Completions of all problems."""
    return [completion for _, completions in problems for completion in completions]


def count(run: Run, parts: Parts, limit: int, decode: Decode) -> Iterator[PrefixCount]:
    """Counts of right completions of all prefixes; a resumed run reuses those of a killed one.

    `limit`: largest number of tokens of a prefix with its completion.
    """
    config = run.config

    def work(first: int) -> Iterator[Step]:
        length = step_labels.max_length(parts, limit)
        sampler = config.load_sampler(run.row.policy, run.seed, length)
        arguments = (sampler, decode, parts, config.preset, limit, run.seed)
        return step_labels.count_right(*arguments, start=first)

    sizes = [config.preset.num_completions * len(part) for part in parts]
    steps = run.parts("prefixes", work, PrefixCount)
    for step in run.track(steps, unit="completions", sizes=sizes):
        yield from step.rows
