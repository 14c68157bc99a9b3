"""Labels from people, or from another project, in a file: preference pairs or step labels.

    python -m stages label_people <pairs> --by people --preset .. --from base --on raw/<file>
    python -m stages steps_people <steps> --by people --preset .. --from base --on raw/<file>

A data set of the hub is named as `--on hub/<owner>/<name>`, its version and split in the preset.
Both read a file and the tokenizer of the policy `from`. They write tokenised rows to learn from and
held-out ones (the same for every seed, so in no seed's folder), and all rows that are left out,
with line and reason.

`label_people` reads pairs of answers to one prompt, ratings, rankings, or completions that are
labelled good or bad, in all common forms (sources/preference_files). Contradicting votes on two
answers become one pair with a soft label (sources/preference_votes). Only KTO learns from labelled
completions without a pair (`train_labelled.jsonl`). The side of a pair depends only on the opening
of its conversation (the text before the first answer), so neither a prompt nor two turns of one
conversation are on both sides. Conversations with the opening of a dev or test prompt are left out,
and counted: policies are tested on those.

`steps_people` reads PRM800K (Lightman et al. 2023), Math-Shepherd (Wang et al. 2024), MATH-APS (Luo
et al. 2024) or ProcessBench (Zheng et al. 2024), and writes solutions tokenised step by step with
their labels, for a process reward model. The side of a solution depends only on its prompt;
ProcessBench is entirely held out. The meaning of a label, neutral ratings, steps after an error and
steps with the separator inside (counted by `cut_at_separator`): sources/step_files, prm800k,
math_aps.
"""

import sys
from collections.abc import Callable
from itertools import chain
from typing import Any

from pydantic import Field

from stages import stage
from stages.config import Params
from stages.loops.run import Run
from stages.models import label_prompting, row_policy
from stages.models.row_policy import ModelConfig
from stages.records import lines
from stages.records.preferences import LABELLED, RawLabelled, RawPreference
from stages.records.problems import BadRow, Prompt
from stages.rows import DATA, PROMPTS
from stages.sources import preference_files, problem_files, quarantine, step_files
from stages.sources.containers import Place
from stages.sources.problem_files import SourceReport
from stages.sources.quarantine import FileLimits
from stages.tables import HUB


class PeoplePreset(FileLimits):
    """Form of a file of preferences, and the share that is held out."""

    columns: preference_files.PairColumns = preference_files.PairColumns()
    """Names of the file's columns; if none is set, the usual names."""
    ignore: list[str] = Field(default_factory=list)
    """Columns, and keys of messages, with content that may be dropped."""
    heldout_share: float = Field(gt=0, lt=1)
    """Share of the conversations that reward models are tested on."""


class StepFilePreset(FileLimits):
    """Form of a file of step labels, and the share that is held out."""

    format: step_files.Format
    ignore: list[str] = Field(default_factory=list)
    """Columns with content that may be dropped."""
    prompt_template: str = Field(pattern=r"\{question\}")
    """Template of a prompt, in the form of data.prompt_template."""
    separator: str = Field(min_length=1)
    """Text after a step, at which the process model's preset splits."""
    heldout_share: float = Field(ge=0, le=1)
    """Share of the problems that process models are tested on; a test set is held out entirely."""


class PeopleLabelling(Params):
    """Keys of params.yaml that label_people reads, and its preset."""

    seeds: list[int]
    model: ModelConfig
    preset: PeoplePreset


class StepFileReading(Params):
    """Keys of params.yaml that steps_people reads, and its preset."""

    seeds: list[int]
    model: ModelConfig
    preset: StepFilePreset


CONFIGS = {"label_people": PeopleLabelling, "steps_people": StepFileReading}


def main(*words: str) -> None:
    """Write `train.jsonl`, `heldout.jsonl`, `quarantine.jsonl` and `metrics.json`."""
    work = read_pairs if words[0] == "label_people" else read_steps
    stage.run(work, words, CONFIGS, per_seed=False)


def read_pairs(run: Run) -> dict[str, Any]:
    """Write the preference pairs, or labelled completions, of files; returns their metrics."""
    table_row, preset = run.row, run.config.preset
    parsed, report = read_rows(run, preference_files.read_preferences, preset.columns)
    bad = [row for row in parsed if isinstance(row, BadRow)]
    labelled = [row for row in parsed if isinstance(row, RawLabelled)]
    # The tokenizer is the same for every seed.
    tokenizer = row_policy.load_row_tokenizer(table_row.policy, run.seed)
    encoded: Any
    if labelled:
        encode, describe = label_prompting.encode_labelled, preference_files.describe_labelled
        encoded, suffix = encode(labelled, tokenizer, max_tokens=preset.max_tokens), LABELLED
        tokens = [[*row.prompt_ids, *row.completion_ids] for _, row in encoded.rows]
    else:
        pairs = [row for row in parsed if isinstance(row, RawPreference)]
        encode, describe = label_prompting.encode_pairs, preference_files.describe_pairs
        encoded, suffix = encode(pairs, tokenizer, max_tokens=preset.max_tokens), ""
        tokens = [
            [*row.prompt_ids, *ids]
            for _, row in encoded.rows
            for ids in (row.chosen_ids, row.rejected_ids)
        ]
    longest = max(map(len, tokens), default=0)
    run.config.model.check_rows(
        tokens, longest, tokenizer, f"max_tokens of the preset {table_row.preset}"
    )
    bad += preference_files.left_out_pairs(encoded.rejected)
    over_long = preference_files.left_out_pairs(encoded.over_long)
    num_rows = report.rows["unsplit"]
    quarantined = preset.left_out(table_row.preset, bad, over_long, num_rows, len(parsed))
    prompts = [lines.read_lines(PROMPTS / f"{split}.jsonl", Prompt) for split in ("dev", "test")]
    apart = preference_files.exclude_openings(encoded.rows, chain(*prompts))
    sides = preference_files.split_pairs(apart, preset.heldout_share)
    metrics: dict[str, Any] = {"generated_tokens": 0, "trained_tokens": 0}
    metrics["rows"] = num_rows
    metrics["of_dev_and_test"] = len(encoded.rows) - len(apart)
    metrics["quarantined"] = quarantine.count_by_kind(quarantined)
    for side, rows in sides.items():
        metrics[side] = describe(rows)
        run.log(0, {f"{side}/{key}": value for key, value in metrics[side].items()})
        run.write(f"{side}{suffix}.jsonl", rows)
    run.write("quarantine.jsonl", quarantined)
    left_out = quarantine.describe_kinds(quarantined)
    if metrics["of_dev_and_test"]:
        left_out += f"{', ' * bool(left_out)}{metrics['of_dev_and_test']} of dev and test prompts"
    counts = f"{len(sides['train'])} {'completions' if labelled else 'pairs'} to learn from"
    counts += f", {len(sides['heldout'])} held out"
    sys.stdout.write(f"  {counts}; left out: {left_out or 'none'}\n")
    return metrics


def read_rows(run: Run, read: Callable[..., Any], form: Any) -> tuple[list[Any], SourceReport]:
    """Rows of the files under data/raw, or the data set of the hub, that `on` names; their report.

    The report is also printed.
    """
    preset, report = run.config.preset, SourceReport(path=run.row.on)
    kind, _, name = run.row.on.partition("/")
    path = name if kind == HUB else DATA / run.row.on
    place = Place(path, preset.name, preset.split, preset.revision)
    rows = list(read(place, form, preset.ignore, where=preset.where, report=report))
    sys.stdout.write(f"{problem_files.describe_report(report)}\n")
    return rows, report


def read_steps(run: Run) -> dict[str, Any]:
    """Write the step labels of a file; returns their metrics."""
    table_row, preset = run.row, run.config.preset
    parsed, _ = read_rows(run, step_files.read_solutions, preset.format)
    bad = [row for row in parsed if isinstance(row, BadRow)]
    raws = [raw for row in parsed if not isinstance(row, BadRow) for raw in row]
    num_rows, num_labels = len(parsed), len(raws) + len(bad)
    inside = [sum(preset.separator in text for text in raw.steps) for raw in raws]
    # The tokenizer is the same for every seed.
    tokenizer = row_policy.load_row_tokenizer(table_row.policy, run.seed)
    encoded = label_prompting.encode_steps(
        [step_files.cut_steps(raw, preset.separator) for raw in raws],
        tokenizer,
        template=preset.prompt_template,
        separator=preset.separator,
        max_tokens=preset.max_tokens,
    )
    tokens = [[*row.prompt_ids, *chain(*row.step_ids)] for row in encoded.rows]
    with_step_tokens = [
        len(ids) + len(row.step_ids) for ids, row in zip(tokens, encoded.rows, strict=True)
    ]
    longest = max(with_step_tokens, default=0)
    run.config.model.check_rows(
        tokens, longest, tokenizer, f"max_tokens of the preset {table_row.preset}"
    )
    bad += step_files.left_out_solutions(encoded.rejected)
    over_long = step_files.left_out_solutions(encoded.over_long)
    quarantined = preset.left_out(table_row.preset, bad, over_long, num_rows, num_labels)
    metrics: dict[str, Any] = {"generated_tokens": 0, "trained_tokens": 0, "rows": num_rows}
    metrics["quarantined"] = quarantine.count_by_kind(quarantined)
    metrics["cut_at_separator"] = {"solutions": sum(map(bool, inside)), "steps": sum(inside)}
    metrics |= step_files.describe_solutions(encoded.rows)
    run.log(0, {f"solutions/{key}": value for key, value in metrics["solutions"].items()})
    for side, rows in step_files.split_solutions(encoded.rows, preset.heldout_share).items():
        metrics[side] = len(rows)
        run.write(f"{side}.jsonl", rows)
    run.write("quarantine.jsonl", quarantined)
    return metrics
