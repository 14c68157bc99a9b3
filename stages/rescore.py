"""Stored completions, rewarded again by another reward: what would it have paid?

    python -m stages.rescore grpo                                the reward that it learned from
    python -m stages.rescore grpo --reward presets/rule          a rule of presets.yaml as it is now
    python -m stages.rescore grpo --reward own/brevity           a file in stages/rewards/own/
    python -m stages.rescore pools/sft --reward rewards/process  a row of `rewards`, also a model
    ... --out folder       every completion with both rewards, one per line, and report.html

Of a policy that PPO or GRPO trained, the completions of its rollouts, step by step as they were
rewarded; the old reward is the one that it learned from. Of a pool, its completions; the old reward
is the answer checker's verdict, 1 or 0. The same reward gives the same numbers to the last digit.
Nothing depends on it, and what DVC keeps is not changed.
"""

import argparse
import logging
from pathlib import Path
from tempfile import TemporaryDirectory

from stages.config import Params
from stages.loops import rescoring
from stages.models.device import ComputeConfig
from stages.params import adopt_rounding, load_config
from stages.records import lines
from stages.report import rescored
from stages.runtime import outputs, process

logger = logging.getLogger(__name__)


class Config(Params):
    """Keys of params.yaml that are read."""

    seeds: list[int]
    compute: ComputeConfig


def main(*words: str) -> None:
    """Print the report; with `--out`, write its page and every completion to a new folder."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(prog="python -m stages.rescore", allow_abbrev=False)
    parser.add_argument("name", metavar="policy | pools/<pool>")
    parser.add_argument("--reward", metavar="rewards/<row> | presets/<name> | own/<file>")
    parser.add_argument("--out", type=Path, metavar="folder")
    arguments = parser.parse_args(words)
    if arguments.out is not None and arguments.out.exists():
        raise ValueError(f"{arguments.out} exists: name a folder that does not")
    config, name = load_config(Config), arguments.name
    reward = arguments.reward or rescoring.find_reward(name)
    rows = [
        row
        for seed in config.seeds
        for batch in rescoring.rescore(name, reward, seed, config.compute)
        for row in batch
    ]
    with (
        TemporaryDirectory() as temporary,
        outputs.replace(arguments.out or Path(temporary) / "page") as folder,
    ):
        folder.mkdir(parents=True)
        meaning = rescoring.describe_old_reward(name)
        rescored.write_page(folder, f"{name}, rewarded by {reward}", meaning, rows)
        lines.write_lines(folder / "rescored.jsonl", rows)
        logger.info("%s", (folder / "report.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    adopt_rounding()
    process.run(main)
