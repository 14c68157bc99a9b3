"""A row of a table of params.yaml, as a stage is told it, and where what it names lies.

dvc.yaml runs `python -m stages.train_grpo grpo ${item}`, which DVC writes out as
`grpo --train grpo --preset grpo_deepseekmath --from sft --on rewards/rule`: the row's name, then
its words. Every path follows from them, so none is written in a table:

    data/policies/<policy>/model/<seed>/      a policy; of `base` one folder for all seeds
    data/pools/<pool>/<seed>/                 completions to label or to learn from
    data/pairs/<pairs>/<seed>/                pairs, or demonstrations, made of them
    data/steps/<steps>/<seed>/                solutions whose steps are labelled
    data/rewards/<reward>/                    reward.json, and the models in <seed>/
    data/samples/<policy>/<seed>/             completions of the dev and test problems
    data/evaluations/<policy>/<seed>/         what the samples and their scores come to
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

DATA = Path("data")
PROMPTS = DATA / "prompts"
BASE = "base"
"""The policy that no row makes: the model of section `model`, with its tokenizer."""
TABLES = ("policies", "pools", "pairs", "steps", "rewards")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of a table."""

    name: str
    by: str
    """Who makes it: the stage is `train_<by>`, `label_<by>` or `reward_<by>`; of a pool nobody."""
    preset: str
    """An entry of stages/presets.yaml; of a pool the split whose problems it answers."""
    policy: str
    """`from` in the table: the policy that it starts from, or that samples, labels or completes."""
    on: str
    """A folder under data/ that it learns from or labels; of a pool none."""

    @property
    def source(self) -> Path:
        """The folder that `on` names."""
        return DATA / self.on


def parse(words: tuple[str, ...]) -> Row:
    """The row of a stage's command line: `<name> --by .. --preset .. --from .. --on ..`.

    `--train` is `--by`, as the table `policies` calls it; a pool has `--split` for its preset.
    `sample` and `evaluate` are told a policy's name alone.
    """
    parser = argparse.ArgumentParser(prog="python -m stages.<stage>", allow_abbrev=False)
    parser.add_argument("name")
    parser.add_argument("--by", "--train", dest="by", default="")
    parser.add_argument("--preset", "--split", dest="preset", default="")
    parser.add_argument("--from", dest="policy", default=BASE)
    parser.add_argument("--on", default="")
    return Row(**vars(parser.parse_args(words)))


def model(policy: str, seed: int) -> Path:
    """The folder of a policy of a seed, as transformers saves it."""
    folder = DATA / "policies" / policy / "model"
    return folder if policy == BASE else folder / str(seed)
