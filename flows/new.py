"""A new row of params.yaml, and a file that works as it stands for what you write yourself.

    posttrain new policy rloo --preset rloo   a policy like `grpo`, by another preset
    posttrain new reward short                stages/rewards/own/short.py, its row, and a policy
    posttrain new environment higher          stages/environments/own/higher.py, row, and a policy
    posttrain new surrogate spo               stages/algorithms/own/spo.py, a preset, and a policy
    posttrain new advantage median            the same, for a baseline of rewards
    posttrain new labeller short              stages/rewards/own/short.py, pairs, and a policy
    posttrain new source sums                 stages/sources/own/sums.py, as `data.source`

Rows are added at the end of their tables; nothing that stands is changed, but that a new source
takes the place of the old one, which stays beside it as a comment. Then `posttrain check` says
whether the plan is valid, and `dvc repro` computes what is new.
"""

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from flows.command_line import make_parser, run

PARAMS, PRESETS = Path("params.yaml"), Path("stages/presets.yaml")
REWARD = '''"""The fewer lines, the better."""

from stages.records.problems import Prompt


def reward(prompt: Prompt, completion: str) -> float:
    """1 for one line, 1/2 for two, and so on."""
    return 1 / max(1, len(completion.splitlines()))
'''
ENVIRONMENT = '''"""Guess a number: the environment says whether it is higher or lower."""

from stages.environments.environment import Message, Reply, Row, Start, write_message


class Game:
    """One episode; what it needs is kept in `self`, since several are played at the same time."""

    def start(self, row: Row, seed: int) -> Start:
        """The first messages, and no tools."""
        self.secret = 1 + seed % 20
        return [write_message("user", "Guess a number from 1 to 20.")], None

    def step(self, message: Message) -> Reply:
        """The answer to a message of the policy; paid and done when the guess is right."""
        guess = int("".join(filter(str.isdecimal, message["content"])) or 0)
        hint = write_message("user", "higher" if guess < self.secret else "lower")
        return Reply(messages=[hint], reward=float(guess == self.secret), done=guess == self.secret)
'''
SURROGATE = '''"""Simple policy optimization: a quadratic penalty on the ratio in place of a clip.

Xie et al. 2024, https://arxiv.org/abs/2401.16025
"""

import torch
from torch import Tensor

EPSILON = 0.2


def surrogate(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Losses, and where they are clipped (nowhere); all tensors are [completion, token]."""
    ratio = torch.exp(logprobs - old_logprobs)
    penalty = advantages.abs() / (2 * EPSILON) * (ratio - 1) ** 2
    return torch.where(mask, penalty - ratio * advantages, 0.0), torch.zeros_like(mask)
'''
ADVANTAGE = '''"""Rewards less the median of their group, which one good completion hardly moves."""

import torch
from torch import Tensor


def advantage(rewards: Tensor, groups: Tensor, *, counted: Tensor) -> Tensor:
    """Advantage of each completion; completions of one prompt have the same id in `groups`."""
    others = (groups[:, None] == groups) & counted
    medians = torch.where(others, rewards, torch.nan).nanmedian(1).values
    return torch.where(counted, rewards - medians, 0.0)
'''
LABELLER = '''"""Of two completions the shorter one is the better."""

from stages.records.problems import Prompt


def prefer(prompt: Prompt, first: str, second: str) -> float:
    """Probability that the first is better; asked in both orders."""
    return 0.5 if len(first) == len(second) else float(len(first) < len(second))
'''
SOURCE = '''"""Sums of two numbers."""

import random
from collections.abc import Iterator


def rows(seed: int) -> Iterator[dict[str, str]]:
    """What the lines of a file of JSON lines would be."""
    for number in random.Random(seed).sample(range(10_000), 3000):
        a, b = divmod(number, 100)
        solution = f"{a} + {b} = {a + b}\\n#### {a + b}"
        yield {"question": f"What is {a} plus {b}?", "answer": str(a + b), "solution": solution}
'''
FILES = {
    "reward": ("rewards", REWARD), "labeller": ("rewards", LABELLER),
    "environment": ("environments", ENVIRONMENT), "surrogate": ("algorithms", SURROGATE),
    "advantage": ("algorithms", ADVANTAGE), "source": ("sources", SOURCE),
}  # fmt: skip
"""Kind -> the folder below stages/ with own files, and the file."""
ROWS: dict[str, dict[str, str]] = {
    "policy": {"policies": "{{train: grpo, preset: {preset}, from: sft, on: rewards/rule}}"},
    "reward": {
        "rewards": "{{by: rule, preset: rule_own, from: base, on: own/{name}}}",
        "policies": "{{train: grpo, preset: {preset}, from: sft, on: rewards/{name}}}",
    },
    "environment": {
        "environments": "{{by: own, preset: game, from: base, on: own/{name}}}",
        "policies": "{{train: grpo, preset: {preset}, from: sft, on: environments/{name}}}",
    },
    "surrogate": {"policies": "{{train: grpo, preset: {name}, from: sft, on: rewards/rule}}"},
    "advantage": {"policies": "{{train: grpo, preset: {name}, from: sft, on: rewards/rule}}"},
    "labeller": {
        "pairs": "{{by: own/{name}, preset: own_pairs, from: base, on: pools/sft}}",
        "policies": "{{train: dpo, preset: dpo_low_beta, from: sft, on: pairs/{name}}}",
    },
    "source": {},
}
"""Kind -> table -> the row that is added to it."""
PRESET = "grpo_deepseekmath"
"""Of a policy for which `--preset` names no other."""
IN_PRESETS = ("surrogate", "advantage")
"""Kinds that an entry of presets.yaml names."""


def main() -> None:
    """Write the rows and the file."""
    parser = make_parser("flows.new", __doc__)
    parser.add_argument("kind", choices=[*ROWS])
    parser.add_argument("name")
    parser.add_argument("--preset", help=f"of the policy, by default {PRESET}")
    options = parser.parse_args()
    if options.preset and not any("{preset}" in row for row in ROWS[options.kind].values()):
        raise ValueError(
            f"--preset: expected none for a new {options.kind}, which has its own: leave it out, "
            f"and edit the row that is written"
        )
    written = write(options.kind, options.name, options.preset or PRESET)
    print("\n".join([*written, "Next: posttrain check, then dvc repro"]))


def write(kind: str, name: str, preset: str) -> list[str]:
    """Add the rows to params.yaml and write the file; returns a line for each.

    Raises:
        ValueError: the name cannot be a Python module's, or is in use, or a table is written in a
            way that no row can be added to. Then nothing is written.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"expected a name of small letters, digits and _, found {name!r}")
    text = PARAMS.read_text(encoding="utf-8")
    tables = YAML(typ="safe", pure=True).load(text)
    rows = {table: row.format(name=name, preset=preset) for table, row in ROWS[kind].items()}
    for table in rows:
        if name in (tables.get(table) or {}):
            raise ValueError(f"{table} in {PARAMS} has a row {name} already: choose another name")
    for table, row in rows.items():
        text = add_row(text, table, f"{name}: {row}")
    lines = [f"{PARAMS}, {table}: {name}: {row}" for table, row in rows.items()]
    if kind == "source":
        text = replace_source(text, f"{{kind: own/{name}}}")
        lines.append(f"{PARAMS}, data.source: {{kind: own/{name}}}; the old one is a comment there")
    presets = PRESETS.read_text(encoding="utf-8") if kind in IN_PRESETS else None
    if presets is not None:
        if name in YAML(typ="safe", pure=True).load(presets):
            raise ValueError(f"{PRESETS} has an entry {name} already: choose another name")
        presets = f"{presets.rstrip()}\n{name}: {{{kind}: own/{name}}}\n"
        lines.insert(0, f"{PRESETS}: {name}: {{{kind}: own/{name}}}")
    if kind in FILES:
        folder, content = FILES[kind]
        path = Path("stages", folder, "own", f"{name}.py")
        if path.exists():
            raise ValueError(f"{path} exists already: choose another name")
        path.write_text(content, encoding="utf-8")
        lines.insert(0, f"{path}: edit it")
    if presets is not None:
        PRESETS.write_text(presets, encoding="utf-8")
    PARAMS.write_text(text, encoding="utf-8")
    return lines


def add_row(text: str, table: str, row: str) -> str:
    """The YAML text with a row at the end of a table, which may be written as `{}`.

    A ValueError with the row if the text would not then say the same and the row.
    """
    changed, content, added = _append(text, table, row), _parse(text), _parse(row)
    content = content if isinstance(content, dict) else {}
    expected = {**content, table: {**(content.get(table) or {}), **added}}
    if changed is None or _parse(changed) != expected:
        raise ValueError(
            f"{PARAMS}: expected a table {table} with a row on each line, indented by two spaces, "
            f"or `{table}: {{}}`, found another form, and wrote nothing. Write it so, or add the "
            f"row by hand:\n{table}:\n  {row}"
        )
    return changed


def replace_source(text: str, source: str) -> str:
    """The YAML text with another `data.source`; the lines of the old one become comments.

    A ValueError with the key if the text would not then say the same and the source.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("  source:")), len(lines))
    end = start + 1
    while end < len(lines) and re.match(r"   |  - |$", lines[end]):
        end += 1
    old = [f"  # {line[2:]}".rstrip() for line in lines[start:end]]
    changed = "\n".join([*lines[:start], f"  source: {source}", *old, *lines[end:], ""])
    content, after = _parse(text), _parse(changed)
    if after != {**content, "data": {**(content.get("data") or {}), "source": _parse(source)}}:
        raise ValueError(
            f"{PARAMS}: expected a section data with a key source, indented by two spaces, found "
            f"another form, and wrote nothing. Write it by hand:\ndata:\n  source: {source}"
        )
    return changed


def _parse(text: str) -> Any:
    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        return None


def _append(text: str, table: str, row: str) -> str | None:
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if re.match(rf"{table}:(\s|$)", line)]
    if not starts:
        return None
    start = starts[0]
    lines[start] = re.sub(r":\s*\{\}", ":", lines[start])
    end = start + 1
    while end < len(lines) and re.match(r"[ #]|$", lines[end]):
        end += 1
    while end > start + 1 and not lines[end - 1].startswith(" "):  # the next table's comments
        end -= 1
    return "\n".join([*lines[:end], f"  {row}", *lines[end:], ""])


if __name__ == "__main__":
    run(main)
