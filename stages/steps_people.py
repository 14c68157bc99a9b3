"""Step labels out of a file of another project, as rows for the process model.

    python -m stages.steps_people <steps> --by people --preset .. --from base --on raw/<file>

Reads PRM800K (Lightman et al. 2023), Math-Shepherd (Wang et al. 2024), MATH-APS (Luo et al.
2024) or ProcessBench (Zheng et al. 2024), and the tokenizer of the policy `from`; writes solutions
tokenised step by step with their labels, to learn from and held out (the same for every seed, so in
no seed's folder), and every row that is left out, with its line and the reason. The side of a
solution depends on its prompt alone; ProcessBench is held out whole. What a label means, and what
becomes of neutral ratings, of steps after an error and of those with the separator inside
(`cut_at_separator` counts them): sources/step_files, prm800k, math_aps.
"""

from typing import Any

from pydantic import Field

from stages import stage
from stages.config import Params
from stages.loops.run import Run
from stages.models import label_prompting, row_policy
from stages.records.problems import BadRow
from stages.runtime import process
from stages.sources import quarantine, step_files
from stages.sources.quarantine import FileLimits


class StepFilePreset(FileLimits):
    """What a file is like, and what is taken of it."""

    format: step_files.Format
    prompt_template: str = Field(pattern=r"\{question\}")
    """As data.prompt_template."""
    separator: str = Field(min_length=1)
    """What stands behind a step, as the process model's preset splits on."""
    heldout_share: float = Field(ge=0, le=1)
    """Share of the problems that process models are tested on; of a test set all."""


class Config(Params):
    """What steps_people reads of params.yaml, and its preset."""

    seeds: list[int]
    preset: StepFilePreset


def main(*words: str) -> None:
    """Write `train.jsonl`, `heldout.jsonl`, `quarantine.jsonl` and `metrics.json`."""
    stage.run(label, "label_steps", words, Config, per_seed=False)


def label(run: Run) -> dict[str, Any]:
    """Read the labels of the file; returns their metrics."""
    row, preset, path = run.row, run.config.preset, run.row.source
    found = list(step_files.solutions(path, preset.format))
    bad = [one for one in found if isinstance(one, BadRow)]
    raws = [raw for one in found if not isinstance(one, BadRow) for raw in one]
    num_read = len(raws) + len(bad)
    inside = [sum(preset.separator in text for text in raw.steps) for raw in raws]
    encoded = label_prompting.encode_steps(
        [step_files.cut(raw, preset.separator) for raw in raws],
        # That of every seed is the same.
        row_policy.load_row_tokenizer(row.policy, run.seed),
        template=preset.prompt_template,
        separator=preset.separator,
        max_tokens=preset.max_tokens,
    )
    bad += step_files.bad_rows(path.name, encoded.rejected)
    over_long = step_files.bad_rows(path.name, encoded.over_long)
    left_out = preset.left_out(row.preset, bad, over_long, num_read)
    metrics: dict[str, Any] = {"generated_tokens": 0, "trained_tokens": 0, "rows": len(found)}
    metrics["quarantined"] = quarantine.count_by_kind(left_out)
    metrics["cut_at_separator"] = {"solutions": sum(map(bool, inside)), "steps": sum(inside)}
    metrics |= step_files.describe(encoded.rows)
    run.log(0, {f"solutions/{key}": value for key, value in metrics["solutions"].items()})
    for side, own in step_files.split(encoded.rows, preset.heldout_share).items():
        metrics[side] = len(own)
        run.write(f"{side}.jsonl", own)
    run.write("quarantine.jsonl", left_out)
    return metrics


if __name__ == "__main__":
    process.run(main)
