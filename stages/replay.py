"""Replay stored episodes, and show the first difference.

    python -m stages.replay grpo-test          a row of the table `episodes`
    python -m stages.replay grpo               a policy trained in an environment: its rollouts
    python -m stages.replay episodes/grpo      of two tables with this name, the row of this one

The environment gets the assistant's messages of each seed again; its messages, tools, rewards and
endings are compared. The first difference of each seed is printed: the episode, the turn, the
stored and the new value; the exit status is then 1. No model is loaded, no stage depends on a
replay, and no output of DVC changes.
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stages.config import read_yaml, suggest
from stages.environments import definition
from stages.environments.definition import EnvironmentFile
from stages.environments.replay import replay_episode
from stages.records.episodes import EPISODES, Episode
from stages.rows import DATA
from stages.runtime import outputs, process

logger = logging.getLogger(__name__)

PLAN = DATA / "plan.json"
FILES = {"episodes": f"episodes/{{}}/{{}}/{EPISODES}",
         "policies": "policies/{}/training/{}/rollouts.jsonl"}  # fmt: skip
"""Table -> file of a row's episodes for a seed, below data/."""


def main(row: str = "") -> None:
    """Replay the episodes of a row; exit status 1 if one differs.

    Raises:
        ValueError: no row of this name has episodes, or a file is missing.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    table, name, words = find_row(row)
    folder, split = DATA / words["on"], words.get("split", "train")
    environment = definition.read_environment(folder)
    starts = {start["id"]: start for start in definition.read_rows(folder, split)}
    has_difference = False
    for seed in read_yaml()["seeds"]:
        path = DATA / FILES[table].format(name, seed)
        num_episodes, difference = replay_file(path, environment, starts)
        logger.info("%s: %s episodes%s", path, f"{num_episodes:,}", difference or ", as stored")
        has_difference |= difference is not None
    if has_difference:
        logger.info(
            "Its code or packages changed since (%s has the earlier ones), and `dvc repro` plays "
            "again; or it depends on more than row, seed and messages.",
            folder / "environment.json",
        )
        sys.exit(1)


def replay_file(
    path: Path, environment: EnvironmentFile, starts: Mapping[str, Mapping[str, Any]]
) -> tuple[int, str | None]:
    """Number of replayed episodes of a file, and the first difference; None: there is none.

    `starts`: rows of the environment, by id.
    """
    num_episodes, factory = 0, definition.load_factory(environment)
    for num_episodes, (place, episode) in enumerate(read_episodes(path), start=1):
        if episode.id not in starts:
            raise ValueError(
                f"{path}: expected episodes from the rows of the environment, found row "
                f"{episode.id!a:.80}. They come from different runs: rerun `dvc repro`"
            )
        limit = environment.preset.timeout_seconds
        difference = replay_episode(factory(), episode, starts[episode.id], timeout_seconds=limit)
        if difference is not None:
            return num_episodes, f", the last differs ({place}), in {difference}"
    return num_episodes, None


def find_row(name: str) -> tuple[str, str, Mapping[str, str]]:
    """Table, name and words of a row that has episodes."""
    plan = outputs.read_json(PLAN)
    rows = {
        f"{table}/{key}": words
        for table in FILES
        for key, words in plan.get(table, {}).items()
        if words["on"].startswith(definition.FOLDER)
    }
    matches = [key for key in rows if name in (key, key.partition("/")[2])]
    if len(matches) != 1:
        choices = ", ".join(matches or rows) or "none: no row of data/plan.json plays"
        raise ValueError(
            f"expected a row that has episodes ({choices}), found {name or 'no name'}"
            f"{suggest(name, rows) if not matches else ''}"
        )
    table, _, key = matches[0].partition("/")
    return table, key, rows[matches[0]]


def read_episodes(path: Path) -> Iterator[tuple[str, Episode]]:
    """The episodes of a file, each with a description of its place."""
    outputs.check_exists(path)
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            row = json.loads(line)
            episode = Episode(**row.get("episode", row))
            step = f"step {row['step'] + 1}, " if "episode" in row else ""
            yield f"line {number}: {step}row {episode.id!a:.80}, episode {episode.index}", episode


if __name__ == "__main__":
    process.run(main)
