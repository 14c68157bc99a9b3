"""What a policy is probed with: the entry's words, the problems, its answers to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from stages.records import lines, pools
from stages.records.completion import Completion
from stages.records.prompt import Prompt


class Words(NamedTuple):
    """Models and files of an entry of probe_policy; each may name none."""

    reward_model: str
    process: str
    judge: str
    transfer: str
    refusals: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """The problems, and what the policy said before."""

    problems: Sequence[tuple[Prompt, list[Completion]]]
    """All test problems with the policy's pool."""
    first: Sequence[tuple[Prompt, list[Completion]]]
    """Those of them that are asked otherwise, scored and judged."""
    plain: Mapping[str, str]
    """Problem's id -> the policy's greedy reply."""
    dev: Sequence[Prompt]

    @property
    def test(self) -> list[Prompt]:
        """The problems of `first`."""
        return [prompt for prompt, _ in self.first]


def load(prompts: Path, pool: Path, num_problems: int) -> Given:
    """What lies in the folder of the prompts and in that of the policy's pool."""
    problems = pools.by_problem(
        lines.read(prompts / "test.jsonl", Prompt), lines.read(pool / "pool.jsonl", Completion)
    )
    greedy = lines.read(pool / "greedy.jsonl", Completion)
    return Given(
        problems=problems,
        first=problems[:num_problems],
        plain={row.id: row.completion for row in greedy},
        dev=list(lines.read(prompts / "dev.jsonl", Prompt)),
    )
