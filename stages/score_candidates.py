"""A scorer's score of every completion in a policy's test pool.

    python -m stages.score_candidates <name> <pool> <scorer>

Reads the pool, the prompts and the scorer, a reward model, an ensemble, a process reward model
or a policy; writes one score a completion. A problem's completions share a reading of its prompt.
"""

import json
from pathlib import Path

import torch
from pydantic import Field

from stages import params
from stages.models import scorer as models_scorer
from stages.models.aggregate import Aggregate
from stages.models.batch import Group, split_group
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig, setup
from stages.models.process_scorer import ProcessScore
from stages.params import Params
from stages.records import lines, pools
from stages.records.completion import Completion
from stages.records.prompt import Prompt
from stages.records.score import Score
from stages.runtime import outputs, process, progress, runs

PROMPTS = Path("data/prepare_data/prompts/test.jsonl")
POOLS = Path("data/sample_candidates")
OUTPUT = Path("data/score_candidates")
CHUNK = 64
"""Groups of completions that are scored between two signs of progress."""


class ScoreCandidates(Params):
    """How scores are written."""

    decimals: int = Field(ge=3, le=9)
    """Digits kept of a score: those below are rounding, and would break ties at random."""


class Config(Params):
    """What score_candidates reads of params.yaml."""

    compute: ComputeConfig
    model: ModelConfig
    ensemble: Aggregate
    process_score: ProcessScore
    score_candidates: ScoreCandidates


def main(name: str, pool_name: str, scorer: str) -> None:
    """Write `scores.jsonl` and `metrics.json`."""
    pool_path, output = POOLS / pool_name / "pool.jsonl", OUTPUT / name
    with runs.start(f"score_candidates@{name}", output, gpu=True) as run:
        config = params.load(Config)
        device = setup(config.compute)
        score = models_scorer.load(
            scorer, config.ensemble, config.process_score, config.model, config.compute, device
        )
        problems = pools.by_problem(lines.read(PROMPTS, Prompt), lines.read(pool_path, Completion))
        rows = [row for _, pool in problems for row in pool]
        parts = groups(problems, config.compute.row_tokens)
        chunks = [parts[start : start + CHUNK] for start in range(0, len(parts), CHUNK)]
        scores, disagreement = torch.zeros(2, len(rows))
        for index, chunk in enumerate(progress.track(chunks, label=f"score {name}")):
            found = score(chunk)
            places = [place for group in chunk for place in group.indices]
            scores[places] = found.values
            disagreement[places] = found.disagreement
            run.log(index, {"score/mean": float(found.values.mean())})
        decimals = config.score_candidates.decimals
        with outputs.replace(output / "scores.jsonl") as temporary:
            lines.write(
                temporary,
                (
                    Score(id=row.id, index=row.index, score=round(float(score), decimals))
                    for row, score in zip(rows, scores, strict=True)
                ),
            )
        metrics = {
            "completions": len(rows),
            "mean_score": round(float(scores.mean()), decimals),
            "disagreement": round(float(disagreement.mean()), decimals),
        }
        with outputs.replace(output / "metrics.json") as temporary:
            temporary.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")


def groups(problems: list[tuple[Prompt, list[Completion]]], row_tokens: int) -> list[Group]:
    """Each problem's completions, numbered in reading order, in groups that fit a row."""
    parts, start = [], 0
    for prompt, pool in problems:
        group = Group(
            prompt_ids=prompt.prompt_ids,
            completions=[row.completion_ids for row in pool],
            indices=range(start, start + len(pool)),
        )
        parts += split_group(group, row_tokens)
        start += len(pool)
    return parts


if __name__ == "__main__":
    process.run(main)
