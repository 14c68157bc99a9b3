"""How a process model's scores of steps become one score of a completion: chosen on dev, frozen.

    python -m stages.choose_aggregation <name> <pool> <scores>

Reads a pool of the dev problems and its scores; writes the kinds of `selection/step_scores` with
the highest accuracy, one for choosing the best of n and one for votes (`choice.json`), and the
accuracies of all (`metrics.json`). Test problems have no part in the choice. Which kind is best
follows what the labels mean (Zhang et al. 2025, https://arxiv.org/abs/2501.07301, section 3.4).
"""

import dataclasses
from pathlib import Path

import pydantic

from stages import params, seeding
from stages.algorithms.selection import votes
from stages.algorithms.selection.step_scores import KINDS
from stages.params import Params
from stages.records import lines, pools
from stages.records.pools import Completion, Score
from stages.records.problems import Prompt
from stages.rewards import aggregation_choice
from stages.rewards.aggregation import Aggregation
from stages.runtime import outputs, process, runs

DATA = Path("data")
PROMPTS = DATA / "prepare_data/prompts/dev.jsonl"
OUTPUT = DATA / "choose_aggregation"


class ChooseAggregation(Params):
    """What the choice is by."""

    n: pydantic.PositiveInt
    """Samples that are chosen among, or vote."""
    num_draws: pydantic.PositiveInt
    """Random subsets that a vote is averaged over."""


class Config(Params):
    """What choose_aggregation reads of params.yaml."""

    seed: int
    choose_aggregation: ChooseAggregation


def main(name: str, pool: str, scores: str) -> None:
    """Write `choice.json` and `metrics.json`.

    Raises:
        ValueError: the pool has fewer than n samples, or no scores of steps.
    """
    output = OUTPUT / name
    with runs.start(f"choose_aggregation@{name}", output) as run:
        config = params.load(Config)
        section = config.choose_aggregation
        path = DATA / f"sample_candidates/{pool}/pool.jsonl"
        problems = pools.by_problem(lines.read(PROMPTS, Prompt), lines.read(path, Completion))
        rows = pools.scores(problems, lines.read(DATA / f"{scores}.jsonl", Score))
        num_samples = len(problems[0][1])
        if section.n > num_samples:
            raise ValueError(
                f"choose_aggregation.n: expected at most {num_samples}, the completions of each "
                f"problem in {path}, found {section.n}. Lower it, or raise "
                f"sample_candidates.dev.num_samples."
            )
        if rows[0][0].steps is None:
            raise ValueError(
                f"data/{scores}.jsonl: expected scores of steps, found none: name a process model "
                f"as the `process` of that entry of score_candidates"
            )
        seed = seeding.derive(config.seed, "choose_aggregation")
        orders = votes.nested_subsets(num_samples, num_draws=section.num_draws, seed=seed)
        accuracy = aggregation_choice.accuracies(problems, rows, orders[:, : section.n])
        choice = Aggregation(
            best_of=max(KINDS, key=accuracy["best_of"].__getitem__),
            weighted=max(KINDS, key=accuracy["weighted"].__getitem__),
        )
        metrics = {"num_problems": len(problems), "n": section.n, **accuracy}
        run.log(
            0, {f"{use}/{kind}": v for use, found in accuracy.items() for kind, v in found.items()}
        )
        outputs.write_json(output / "choice.json", dataclasses.asdict(choice))
        outputs.write_json(output / "metrics.json", metrics)


if __name__ == "__main__":
    process.run(main)
