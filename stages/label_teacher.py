"""A teacher's completions as demonstrations, with the teacher: off-policy distillation.

    python -m stages label_teacher <pairs> --by teacher --preset .. --from .. --on pools/<pool>

Reads the pool of each seed, and the policy `from`, which is the teacher. Writes every completion of
the pool as a row of `demonstrations.jsonl`, right or wrong, equal ones as often as they were drawn:
only then are they samples of the teacher's distribution. A truncated completion is the beginning of
a sample, and its tokens count as well. `model/` has hard links to the teacher's files, so that
trainings on this row depend on the teacher's weights: a pool has only its name.

`train: sft` with a preset such as `forward_kl` learns the teacher's distribution at each token
(`algorithms/forward_kl`); with `sft` or `rejection_sampling`, its tokens. If the pool is from a
policy other than the teacher, the teacher is distilled on that policy's texts: supervised
distillation, unless that policy is the student (Agarwal et al., GKD, 2024,
https://arxiv.org/abs/2306.13649). `metrics.json` names both, `teacher` and `pool_policy`.
"""

import shutil
from typing import Any

from pydantic import Field

from stages import rows, stage
from stages.config import Params
from stages.loops.run import Run
from stages.records import pools
from stages.records.problems import TEACHER
from stages.runtime import outputs


class TeacherPreset(Params):
    """Demonstrations from all completions of a pool."""

    max_samples_per_problem: int | None = Field(ge=1)
    """Number of completions of each problem, the first ones, independent draws; null: all."""


class Config(Params):
    """Keys of params.yaml that label_teacher reads, and its preset."""

    seeds: list[int]
    preset: TeacherPreset


def main(*words: str) -> None:
    """Write `demonstrations.jsonl`, `model/` and `metrics.json` of each seed."""
    stage.run(write_demonstrations, words, Config)


def write_demonstrations(run: Run) -> dict[str, Any]:
    """Write the completions and the teacher of one seed; returns their metrics."""
    limit, origin = run.config.preset.max_samples_per_problem, pools.read_origin(run.row.source)
    problems = pools.read_pools(run.row.source, run.seed, "train")
    written = [
        pools.make_demonstration(prompt, row)
        for prompt, pool in run.track(problems, unit="problems")
        for row in pool[:limit]
    ]
    run.write("demonstrations.jsonl", written)
    teacher = rows.locate_policy(run.row.policy, run.seed)
    shutil.copytree(teacher, run.output / TEACHER, copy_function=outputs.link_or_copy)
    metrics = {
        "problems": len(problems),
        "demonstrations": len(written),
        "tokens": sum(len(row.completion_ids) for row in written),
    }
    run.log(0, metrics)
    return metrics | {"teacher": run.row.policy, "pool_policy": origin["policy"]}
