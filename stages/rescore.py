"""Rescore stored completions by another reward.

    python -m stages.rescore grpo                                the reward of its training
    python -m stages.rescore grpo --reward presets/rule          a rule of the present presets.yaml
    python -m stages.rescore grpo --reward own/brevity           a file in stages/rewards/own/
    python -m stages.rescore pools/sft --reward rewards/process  a row of `rewards`, also a model
    ... --out folder       every completion with both rewards, one per line, and report.html

For a policy trained by PPO or GRPO, the completions are those of its rollouts, step by step, and
the old reward is that of its training. For a pool, the old reward is the answer checker's verdict,
1 or 0. The same reward gives the same numbers to the last digit. No stage depends on it, and no
output of DVC changes.
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
