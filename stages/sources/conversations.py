r"""Conversations: lists of messages or transcripts, as prompts without a gold answer.

`Messages` reads the shapes of UltraChat and Tulu (`role`, `content`) and of ShareGPT (`from`,
`value`), transcripts (HH-RLHF) and plain texts, each of which is what a user asks:

    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]}
    {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello!"}]}
    {"chosen": "\n\nHuman: Hi\n\nAssistant: Hello!"}
    {"prompt": "Hi"}

The prompt of a conversation is what stands before the assistant's last turn; one that ends with the
user's turn has a prompt alone. Of the train split every turn of the assistant that follows one of
the user is a demonstration of its own, all before it being its prompt (`models/prompting`): what is
learned is what a mask over the assistant's tokens would leave, each turn rendered as when the model
is asked for it, though a template may render earlier turns otherwise, as those that think do.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import model_validator

from stages.config import Params
from stages.records.problems import BadRow, Problem, Turn
from stages.records.transcripts import SPEAKERS, render_question
from stages.sources import raw_rows
from stages.sources.quarantine import RejectedError

ROLES_OF_SPEAKERS = {name: role for role, name in SPEAKERS.items()}
ROLES = ("system", *SPEAKERS)
SHAREGPT = {"human": "user", "gpt": "assistant"}
_TURN = re.compile(rf"\n\n({'|'.join(ROLES_OF_SPEAKERS)}):")


class Messages(Params):
    """Conversations of people with an assistant; nothing in them can be checked."""

    kind: Literal["messages"]
    path: str
    """A file of JSON lines (.jsonl, .jsonl.gz) or with a JSON array (.json); with `train_split` a
    hub id or a folder of .json, .jsonl, .csv or .parquet files. List what is on disk under
    prepare_data's `deps` in dvc.yaml, so that DVC notices when it changes."""
    name: str | None
    """The hub data set's configuration, where it has several."""
    revision: str | None
    """The commit of a hub id."""
    train_split: str | None
    """The split that becomes train, preference and dev prompts; null: `path` is a file."""
    test_split: str | None
    """The split that becomes test prompts; null: they are taken by hash."""
    column: str
    """The conversation: `messages`, `conversations`, `chosen`, `prompt`."""
    licence: str

    @model_validator(mode="after")
    def _a_file_has_no_splits(self) -> "Messages":
        if self.train_split is None and (self.name or self.revision or self.test_split):
            raise ValueError(
                "expected name, revision and test_split to be null where train_split is, found "
                f"{self.name!r}, {self.revision!r} and {self.test_split!r}: name the train_split "
                f"of a hub id or folder, or set them to null for a file"
            )
        return self

    def problems(self) -> Iterator[Problem | BadRow]:
        """The conversations of both splits, the train split first."""
        if self.train_split is None:
            path = Path(self.path)
            parse = partial(self._problem, name=path.name.partition(".")[0], split=None)
            yield from raw_rows.parse_rows(raw_rows.read_rows(path), parse, path.name)
            return
        first = None if self.test_split is None else "train"
        for split, name in ((first, self.train_split), ("test", self.test_split)):
            if name is not None:
                parse = partial(self._problem, name=name, split=split)
                rows = raw_rows.load_hub_rows(self.path, self.name, self.revision, name)
                yield from raw_rows.parse_rows(rows, parse, name)

    def file_name(self, split: str | None) -> str:
        """The name of the file, or of the hub's split, that holds `split`."""
        if self.train_split is None:
            return Path(self.path).name
        return self.train_split if split != "test" else str(self.test_split)

    def _problem(
        self, fields: Mapping[str, Any], line: int, *, name: str, split: str | None
    ) -> Problem:
        turns = read_turns(fields, self.column)
        if not all(turn.content for turn in turns):
            raise RejectedError("empty turn: one of the turns says nothing")
        reply = turns.pop().content if turns[-1].role == "assistant" else None
        if not turns or turns[-1].role != "user":
            raise RejectedError("no question: the turn before the answer is not the user's")
        return Problem(
            id=f"{name}-{line:06d}", question=render_question(turns), answer=None, solution=reply,
            split=split, line=line, turns=tuple(turns),
        )  # fmt: skip


def read_turns(fields: Mapping[str, Any], column: str) -> list[Turn]:
    """The turns in `column`, their texts stripped; RejectedError where there are none."""
    if isinstance(fields.get(column), str):
        text = raw_rows.read_verbatim(fields, column)
        return parse_transcript(text) if _TURN.match(text) else [Turn("user", text.strip())]
    return read_messages(fields, column)


def read_messages(fields: Mapping[str, Any], column: str) -> list[Turn]:
    """The list of messages in `column`, of either shape."""
    turns = []
    for message in raw_rows.read_list(fields, column, "no conversation"):
        entry = message if isinstance(message, dict) else {}
        key, content = ("from", "value") if "from" in entry else ("role", "content")
        role = SHAREGPT.get(str(entry.get(key)), entry.get(key))
        if role not in ROLES:
            expected = f"a role of {', '.join(ROLES)} and a content"
            raise RejectedError(f"no message: expected {expected}, found {message!r:.60}")
        turns.append(Turn(role, raw_rows.read_maybe_empty(entry, content).strip()))
    return turns


def parse_transcript(text: str) -> list[Turn]:
    """The turns of a transcript, their texts stripped."""
    before, *parts = _TURN.split(text)
    if before.strip() or not parts:
        raise RejectedError(f"no transcript: expected a turn at the beginning, found {text!r:.60}")
    return [
        Turn(ROLES_OF_SPEAKERS[name], content.strip())
        for name, content in zip(parts[::2], parts[1::2], strict=True)
    ]


def parse_question(question: str) -> list[Turn]:
    """The turns that `render_question` shows."""
    before, *_ = _TURN.split(f"\n\n{question}")
    rest = f"\n\n{question}".removeprefix(before)
    if not rest:
        return [Turn("user", before.strip())]
    system = [Turn("system", before.strip())] if before.strip() else []
    turns = [*system, *parse_transcript(rest)]
    # A message that quotes an assistant's turn is no transcript.
    return turns if any(turn.role == "user" for turn in turns) else [Turn("user", question.strip())]
