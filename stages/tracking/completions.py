"""Tables of completions and conversations to read: a few rows, with prompts, without token ids.

Rollouts of PPO and GRPO show their first and last rows; other files their first ones.
"""

import itertools
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, TypedDict

from stages.records.conversations import render_episode
from stages.records.episodes import EPISODES, Episode
from stages.rows import PROMPTS
from stages.tracking.lockfile import Entry

FILES = {"test.jsonl", "test_greedy.jsonl", "train.jsonl", "verdicts.jsonl", EPISODES}
ROLLOUTS = "rollouts.jsonl"
MAX_ROWS = 50
MAX_TAIL_BYTES = 1_000_000
"""Bytes that are read at the end of a file of rollouts."""
FIRST = (
    "step", "question", "prompt", "conversation", "completion", "reward", "success", "correct",
    "answer",
)  # fmt: skip
"""Columns that come first, in this order; the others follow."""


class Table(TypedDict):
    """A table as MLflow's pages show it."""

    columns: list[str]
    data: list[list[Any]]


def read_tables(entry: Entry) -> Iterator[tuple[str, Table]]:
    """(name, table) of each file of completions of the stage's first seed."""
    for out in entry.outs:
        seeds = sorted(path for path in out.path.glob("*") if path.name.isdigit())
        for path in sorted(seeds[0].glob("*.jsonl")) if seeds else []:
            if path.name == ROLLOUTS:
                rows = read_rollouts(path)
            elif path.name in FILES:
                with path.open(encoding="utf-8") as file:
                    rows = [json.loads(line) for line in itertools.islice(file, MAX_ROWS)]
            else:
                continue
            if rows:
                yield path.stem, to_table(rows)


def to_table(rows: list[dict[str, Any]]) -> Table:
    """Table of rows, with the question and gold answer of the problem that a row names.

    An episode is shown as a conversation.
    """
    rows = [show_episode(row) for row in rows]
    prompts = read_prompts({row["id"] for row in rows if "id" in row and "prompt" not in row})
    joined = [prompts.get(row.get("id", ""), {}) | row for row in rows]
    names = {
        name: None
        for row in joined
        for name, value in row.items()
        if not isinstance(value, list | dict)
    }
    columns = [name for name in FIRST if name in names]
    columns += [name for name in names if name not in FIRST]
    return Table(columns=columns, data=[[row.get(name) for name in columns] for row in joined])


def show_episode(row: dict[str, Any]) -> dict[str, Any]:
    """A row of an episode, as a conversation; other rows unchanged."""
    fields = row.get("episode", row if "num_start_messages" in row else None)
    if fields is None:
        return row
    episode = Episode(**fields)
    shown = {
        "conversation": render_episode(episode), "reward": episode.reward,
        "success": episode.success, "turns": len(episode.sampled),
        "tool_calls": episode.num_tool_calls, "ending": episode.ending,
    }  # fmt: skip
    names = ("step", "id", "index", "completion")
    return {name: row[name] for name in names if name in row} | shown


def read_prompts(ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """Question and gold answer of problems, by id; ids that no split has are left out."""
    problems: dict[str, dict[str, Any]] = {}
    for path in sorted(PROMPTS.glob("*.jsonl")):
        if len(problems) == len(ids):
            break
        with path.open(encoding="utf-8") as file:
            for row in map(json.loads, file):
                if row["id"] in ids:
                    problems[row["id"]] = {name: row[name] for name in ("question", "answer")}
    return problems


def read_rollouts(path: Path) -> list[dict[str, Any]]:
    """The first and the last rows of a file that may be growing.

    It may hold gigabytes, so the rest is not read. An incomplete line is left out.
    """
    with path.open("rb") as file:
        first = list(itertools.islice(file, MAX_ROWS // 2))
        begin = file.tell()
        file.seek(max(begin, path.stat().st_size - MAX_TAIL_BYTES))
        if file.tell() > begin:
            file.readline()  # a part of a row
        last = [line for line in file if line.endswith(b"\n")][-MAX_ROWS // 2 :]
    return [json.loads(line) for line in [*first, *last] if line.endswith(b"\n")]
