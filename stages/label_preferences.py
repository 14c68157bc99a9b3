"""Label which of two completions of a problem is better.

Reads the SFT policy's pools of completions and the prompts they answer; writes
pairs of one right and one wrong completion per problem, for training (from the
preference split) and held out (from the dev split). The label comes from the
answer checker, so unlike people's or a judge's preferences (Christiano et al. 2017,
https://arxiv.org/abs/1706.03741) it is never wrong about the final answer and
says nothing about style.
"""

import json
import logging
from pathlib import Path
from typing import Literal

import pydantic

from stages import params, seeding
from stages.params import Params
from stages.records import lines, pools
from stages.records.completion import Completion
from stages.records.prompt import Prompt
from stages.rewards import preference_pairs
from stages.runtime import outputs, progress, runs

logger = logging.getLogger(__name__)

PROMPTS = Path("data/prepare_data/prompts")
POOLS = Path("data/sample_candidates")
OUTPUT = Path("data/label_preferences")
FILES = {"train": "preference", "heldout": "dev"}
"""Output file -> the split of problems that it is made from."""


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


def main() -> None:
    """Write `train.jsonl`, `heldout.jsonl` and `metrics.json`."""
    with runs.start("label_preferences", OUTPUT) as run:
        config = params.load(Config)
        metrics = {}
        for name, split in FILES.items():
            labelled = label(config, split)
            metrics[name] = preference_pairs.summarise(labelled)
            with outputs.replace(OUTPUT / f"{name}.jsonl") as temporary:
                lines.write(temporary, (pair for one in labelled for pair in one.preferences))
            run.log(0, {f"{name}/{key}": float(value) for key, value in metrics[name].items()})
        with outputs.replace(OUTPUT / "metrics.json") as temporary:
            temporary.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")


def label(config: Config, split: str) -> list[preference_pairs.Labelled]:
    """The pairs of one split's pool.

    Raises:
        ValueError: not a single problem has both a right and a wrong completion.
    """
    pool_path = POOLS / f"sft-{split}" / "pool.jsonl"
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
        for prompt, pool in progress.track(problems, total=len(problems), label=f"label {split}")
    ]
    found = preference_pairs.summarise(labelled)
    if not found["pairs"]:
        raise ValueError(
            f"{pool_path}: expected problems with both a right and a wrong completion, found "
            f"none: {found}. Sample more completions of each problem (sample_candidates: "
            f"num_samples, temperature, max_new_tokens), train the SFT policy for longer, or use "
            f"problems that it sometimes solves."
        )
    logger.info("%s: %s", split, found)
    return labelled


if __name__ == "__main__":
    main()
