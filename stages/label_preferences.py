"""Label which of two completions of a problem is better.

    python -m stages.label_preferences <name> <train pool> <heldout pool>

Reads a policy's pools of completions and the prompts they answer; writes
pairs of one right and one wrong completion per problem, for training (from the
preference split) and held out (from the dev split). The label comes from the
answer checker, so unlike people's or a judge's preferences (Christiano et al. 2017,
https://arxiv.org/abs/1706.03741) it is never wrong about the final answer and
says nothing about style.
"""

import logging
from pathlib import Path
from typing import Literal

import pydantic

from stages import params, seeding
from stages.params import Params
from stages.records import lines, pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import preference_pairs
from stages.runtime import outputs, process, progress, runs

logger = logging.getLogger(__name__)

PROMPTS = Path("data/prepare_data/prompts")
POOLS = Path("data/sample_candidates")
OUTPUT = Path("data/label_preferences")
SPLITS = {"train": "preference", "heldout": "dev"}
"""Output file -> the split of problems that its pool is of."""


class LabelPreferences(Params):
    """How pairs are made."""

    source: Literal["verifier"]
    """Who says which completion is better: the answer checker."""
    max_pairs_per_problem: int = pydantic.Field(ge=1)
    """At most so many pairs of one problem, so that no problem dominates."""


class Config(Params):
    """What label_preferences reads of params.yaml."""

    seed: int
    label_preferences: LabelPreferences


def main(name: str, train: str, heldout: str) -> None:
    """Write `train.jsonl`, `heldout.jsonl` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"label_preferences@{name}", output) as run:
        config = params.load(Config)
        metrics = {}
        for file, pool in {"train": train, "heldout": heldout}.items():
            labelled = label(config, pool, SPLITS[file])
            metrics[file] = preference_pairs.summarise(labelled)
            with outputs.replace(output / f"{file}.jsonl") as temporary:
                lines.write(temporary, (pair for one in labelled for pair in one.preferences))
            run.log(0, {f"{file}/{key}": float(value) for key, value in metrics[file].items()})
        outputs.write_json(output / "metrics.json", metrics)


def label(config: Config, pool_name: str, split: str) -> list[preference_pairs.Labelled]:
    """The pairs of one pool of the problems of `split`.

    Raises:
        ValueError: not a single problem has both a right and a wrong completion.
    """
    pool_path = POOLS / pool_name / "pool.jsonl"
    problems = pools.by_problem(
        lines.read(PROMPTS / f"{split}.jsonl", Prompt), lines.read(pool_path, Completion)
    )
    labelled = [
        preference_pairs.label(
            prompt,
            pool,
            source=config.label_preferences.source,
            max_pairs=config.label_preferences.max_pairs_per_problem,
            seed=seeding.derive(config.seed, "label_preferences", prompt.id),
        )
        for prompt, pool in progress.track(
            problems, total=len(problems), label=f"label {pool_name}"
        )
    ]
    found = preference_pairs.summarise(labelled)
    if not found["pairs"]:
        raise ValueError(
            f"{pool_path}: expected problems with both a right and a wrong completion, found "
            f"none: {found}. Sample more completions of each problem (sample_candidates: "
            f"num_samples, temperature, max_new_tokens), train the policy for longer, or use "
            f"problems that it sometimes solves."
        )
    logger.info("%s: %s", pool_name, found)
    return labelled


if __name__ == "__main__":
    process.run(main)
