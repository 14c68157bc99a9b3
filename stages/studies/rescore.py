"""Study: what would another reward have paid for completions that are stored?

    python -m stages.studies rescore

The rollouts that a policy learned from, or the completions of a pool, rewarded again by a row of
`rewards` (`loops/rescoring`): means of both rewards by step, their rank correlation, and the
completions that change sides, with their texts. A rule takes seconds and loads no model.
"""

from collections.abc import Mapping
from functools import partial
from itertools import groupby
from pathlib import Path

from stages.config import Params
from stages.loops import rescoring
from stages.loops.run import Run
from stages.models.device import ComputeConfig
from stages.params import adopt_rounding
from stages.records import lines
from stages.records.rescored import Rescored
from stages.report import rescored
from stages.rows import DATA
from stages.runtime import outputs, process
from stages.studies import study as studies

POLICIES = "policies/"


class RescoreRow(Params):
    """A row of the study's table."""

    of: str
    """`policies/<policy>`, the rollouts that it learned from, or `pools/<pool>`."""
    reward: str
    """`rewards/<row>`."""


class RescoreTable(Params):
    """The study's rows by name."""

    rows: Mapping[str, RescoreRow]


class Config(Params):
    """Keys that the study reads."""

    seeds: list[int]
    compute: ComputeConfig
    rescore: RescoreTable


def main(row_name: str) -> None:
    """Write the rows of each seed, metrics.json and the page of one row."""
    with studies.start_study(f"rescore@{row_name}", plots=False) as study:
        config = studies.load_study_config(Config, "rescore")
        row = config.rescore.rows[row_name]
        check_row(row_name, row)
        name = row.of.removeprefix(POLICIES)
        study.for_each_seed(config.seeds, partial(rescore_seed, config, name, row.reward))
        rows_by_seed = {
            seed: list(lines.read_lines(study.rows / str(seed) / "rescored.jsonl", Rescored))
            for seed in config.seeds
        }
        rows = [completion for of_seed in rows_by_seed.values() for completion in of_seed]
        title, meaning = f"{name}, rewarded by {row.reward}", rescoring.describe_old_reward(name)
        with outputs.replace(study.folder / "page") as page:
            page.mkdir()
            rescored.write_page(page, title, meaning, rows)
        metrics = rescored.summarise(rows) | {
            "seeds": {seed: rescored.summarise(of_seed) for seed, of_seed in rows_by_seed.items()}
        }
        outputs.write_json(study.folder / "metrics.json", metrics)


def check_row(name: str, row: RescoreRow) -> None:
    """A ValueError where a row names what is no policy, pool or reward."""
    expected = {"of": (POLICIES, rescoring.POOLS), "reward": (rescoring.REWARDS,)}
    for key, prefixes in expected.items():
        value = getattr(row, key)
        if not value.startswith(prefixes) or not (DATA / value).is_dir():
            raise ValueError(
                f"{studies.STUDY_PARAMS}: rescore.rows.{name}.{key}: expected "
                f"{' or '.join(f'{prefix}<row>' for prefix in prefixes)} of the run, found {value}"
            )


def rescore_seed(config: Config, name: str, reward: str, run: Run, folder: Path) -> None:
    """Every stored completion of one seed, with the means of each step in the journal."""
    batches = rescoring.rescore(name, reward, run.seed, config.compute)
    rows = [row for batch in batches for row in batch]
    lines.write_lines(folder / "rescored.jsonl", rows)
    outputs.write_json(folder / "metrics.json", rescored.summarise(rows))
    for step, batch in groupby(rows, key=lambda row: row.step):
        metrics = rescored.summarise(list(batch))
        names = ("old", "new", "rank_correlation", "change_sides", "other_verdicts")
        run.log(step, {key: metrics[key] for key in names if metrics[key] is not None})


if __name__ == "__main__":
    adopt_rounding()
    process.run(main)
