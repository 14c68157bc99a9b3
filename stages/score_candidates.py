"""A scorer's score of every completion in a policy's test pool.

    python -m stages.score_candidates <name> <pool> <scorer>

Reads the pool, the prompts and the scorer, a reward model, an ensemble or a policy; writes one
score a completion. The completions of a problem share one reading of its prompt.
"""

import json
import sys
from pathlib import Path

import torch
from pydantic import Field

from stages import params
from stages.models import model_tokenizer
from stages.models import scorer as models_scorer
from stages.models.aggregate import Aggregate
from stages.models.batch import Group, micro_batches, split_group
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig, setup
from stages.params import Params
from stages.records import lines, pools
from stages.records.completion import Completion
from stages.records.prompt import Prompt
from stages.records.score import Score
from stages.runtime import outputs, progress, runs

PROMPTS = Path("data/prepare_data/prompts/test.jsonl")
POOLS = Path("data/sample_candidates")
OUTPUT = Path("data/score_candidates")


class ScoreCandidates(Params):
    """How scores are written."""

    decimals: int = Field(ge=3, le=9)
    """Digits kept of a score: those below are rounding, and would break ties at random."""


class Config(Params):
    """What score_candidates reads of params.yaml."""

    compute: ComputeConfig
    model: ModelConfig
    ensemble: Aggregate
    score_candidates: ScoreCandidates


@torch.no_grad()
def main(name: str, pool_name: str, scorer: str) -> None:
    """Write `scores.jsonl` and `metrics.json`."""
    pool_path, output = POOLS / pool_name / "pool.jsonl", OUTPUT / name
    with runs.start(f"score_candidates@{name}", output, gpu=True) as run:
        config = params.load(Config)
        device = setup(config.compute)
        score = models_scorer.load(scorer, config.ensemble, config.model, config.compute, device)
        pad_id = model_tokenizer.pad_id(models_scorer.tokenizer(scorer))
        problems = pools.by_problem(lines.read(PROMPTS, Prompt), lines.read(pool_path, Completion))
        rows = [row for _, pool in problems for row in pool]
        batches = list(
            micro_batches(
                groups(problems, config.compute.row_tokens), config.compute, pad_id, device
            )
        )
        scores, disagreement = torch.zeros(2, len(rows))
        for index, batch in enumerate(progress.track(batches, label=f"score {name}")):
            found = score(batch)
            scores[batch.indices] = found.values.cpu()
            disagreement[batch.indices] = found.disagreement.cpu()
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
    main(*sys.argv[1:])
