"""What scorers make of every completion in a policy's pool.

    python -m stages.score_candidates <name> <pool> <split>
        <ensemble> <reward_model> <outcome> <process>

Reads the pool, its prompts and the models that the entry names (the others are `no_model`);
writes a row of scores a completion. Equal completions of a problem are read once, and a problem's
completions share a reading of its prompt.
"""

from pathlib import Path
from typing import Any

from pydantic import Field

from stages import params
from stages.loops import work
from stages.models import pool_scorer, size
from stages.models.aggregate import Aggregate
from stages.models.device import ComputeConfig, setup
from stages.params import Params
from stages.records import lines, pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.runtime import outputs, process, progress, runs

DATA = Path("data")
OUTPUT = DATA / "score_candidates"
NO_MODEL = "no_model"
CHUNK = 64
"""Groups of completions that are scored between two signs of progress."""


class ScoreCandidates(Params):
    """How scores are written."""

    decimals: int = Field(ge=3, le=9)
    """Digits kept of a score: those below are rounding, and would break ties at random."""


class Config(Params):
    """What score_candidates reads of params.yaml."""

    compute: ComputeConfig
    ensemble: Aggregate
    score_candidates: ScoreCandidates


def main(name: str, pool_name: str, split: str, *words: str) -> None:
    """Write `scores.jsonl` and `metrics.json`."""
    output = OUTPUT / name
    named = dict(zip(("ensemble", "reward_model", "outcome", "process"), words, strict=True))
    named = {kind: word for kind, word in named.items() if word != NO_MODEL}
    with runs.start(f"score_candidates@{name}", output, gpu=True) as run:
        config = params.load(Config)
        compute, device = config.compute, setup(config.compute)
        problems = pools.by_problem(
            lines.read(DATA / f"prepare_data/prompts/{split}.jsonl", Prompt),
            lines.read(DATA / f"sample_candidates/{pool_name}/pool.jsonl", Completion),
        )
        parts, rows = pool_scorer.groups(problems, compute.row_tokens)
        chunks = [parts[start : start + CHUNK] for start in range(0, len(parts), CHUNK)]
        positions = sum(part.length() for part in parts)
        views, done = [], []
        for kind, word in named.items():
            score = pool_scorer.load(kind, DATA / word, config.ensemble, compute, device)
            label = f"score {name}: {kind}"
            views.append([score(chunk) for chunk in progress.track(chunks, label=label)])
            done.append(work.passed(kind, "read", positions=positions))
        scores = pool_scorer.rows(rows, views, decimals=config.score_candidates.decimals)
        with outputs.replace(output / "scores.jsonl") as temporary:
            lines.write(temporary, scores)
        metrics: dict[str, Any] = {"completions": len(rows)}
        metrics["distinct"] = len({place for _, place in rows})
        for kind in scores[0].scores:
            mean = sum(row.scores[kind] for row in scores) / len(scores)
            metrics[f"mean_{kind}"] = round(mean, 5)
        run.log(0, metrics)
        sizes = {kind: size.of_scorer(DATA / word) for kind, word in named.items()}
        metrics |= {"generated_tokens": 0, "work": work.summary(done, sizes)}
        outputs.write_json(output / "metrics.json", metrics)


if __name__ == "__main__":
    process.run(main)
