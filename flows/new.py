"""Add a row to params.yaml, with a working example file.

    posttrain new policy rloo --preset rloo   a policy like `grpo`, with another preset
    posttrain new reward short                stages/rewards/own/short.py, its row, and a policy
    posttrain new environment higher          stages/environments/own/higher.py, row, a policy, and
                                              its episodes
    posttrain new surrogate spo               stages/algorithms/own/spo.py, a preset, and a policy
    posttrain new advantage median            the same, for a baseline of rewards
    posttrain new labeller short              stages/rewards/own/short.py, pairs, and a policy
    posttrain new source sums                 stages/sources/own/sums.py, as `data.source`

File and rows are the examples of README.md and stages/write_your_own.md, under your name. Rows are
added at the end of their tables, and existing rows are not changed; a new source replaces the old
one, which stays as a comment. Then `posttrain check` checks the plan, and `dvc repro` computes the
new rows.
"""

import re
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from flows.command_line import make_parser, run

PARAMS, PRESETS = Path("params.yaml"), Path("stages/presets.yaml")
PAGES = (Path("README.md"), Path("stages/write_your_own.md"))
EXAMPLES = {
    "reward": "short", "environment": "higher", "surrogate": "spo", "advantage": "median",
    "labeller": "shorter", "source": "sums",
}  # fmt: skip
"""Kind of file -> name of the example in the pages."""
POLICY, PRESET = "policy", "grpo_deepseekmath"
"""The kind without a file, and the default of `--preset`."""


def main() -> None:
    """Write the rows and the file."""
    parser = make_parser("flows.new", __doc__)
    parser.add_argument("kind", choices=[POLICY, *EXAMPLES])
    parser.add_argument("name")
    parser.add_argument("--preset", help=f"of the policy, by default {PRESET}")
    options = parser.parse_args()
    written = write(options.kind, options.name, options.preset)
    print("\n".join([*written, "Next: posttrain check, then dvc repro"]))


def write(kind: str, name: str, preset: str | None = None) -> list[str]:
    """Add the rows to params.yaml and write the file; returns a line for each.

    Raises:
        ValueError: the name is in use or not valid for a Python module, or a table is written in a
            way that no row can be added to. Then nothing is written.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"expected a name of small letters, digits and _, found {name!r}")
    path, code, blocks = read_example(kind, name)
    if preset is not None and not any(f"preset: {PRESET}" in block for block in blocks):
        raise ValueError(
            f"--preset: expected none for a new {kind}, which writes one: leave it out, "
            f"and edit the row that is written"
        )
    before = {file: file.read_text(encoding="utf-8") for file in (PARAMS, PRESETS)}
    texts = {file: f"{text.rstrip()}\n" for file, text in before.items()}
    lines = [] if path is None else [f"{path}: edit it"]
    for block in blocks:
        row = block.replace(f"preset: {PRESET}", f"preset: {preset or PRESET}")
        if row.startswith(f"# {PRESETS}\n"):
            entry = row.partition("\n")[2]
            refuse_name(parse(texts[PRESETS]), name, PRESETS)
            texts[PRESETS] += entry
            lines.append(f"{PRESETS}: {entry.rstrip()}")
            continue
        for table, line in re.findall(r"(?m)^(\w+):\n  (.*)$", row):
            if kind == "source":
                texts[PARAMS] = replace_source(texts[PARAMS], line.removeprefix("source: "))
                lines.append(f"{PARAMS}, data: {line}; the old one is a comment there")
            else:
                refuse_name(parse(texts[PARAMS]).get(table) or {}, name, f"{table} in {PARAMS}")
                texts[PARAMS] = add_row(texts[PARAMS], table, line)
                lines.append(f"{PARAMS}, {table}: {line}")
    if path is not None:
        if path.exists():
            raise ValueError(f"{path} exists already: choose another name")
        path.write_text(code, encoding="utf-8")
    for file, text in texts.items():
        if text != before[file]:
            file.write_text(text, encoding="utf-8")
    return lines


def read_example(kind: str, name: str) -> tuple[Path | None, str, list[str]]:
    """Path and code of a kind's example, and the YAML of its rows and preset, under a new name."""
    if kind == POLICY:
        row = f"{{train: grpo, preset: {PRESET}, from: sft, on: rewards/rule}}"
        return None, "", [f"policies:\n  {name}: {row}\n"]
    word = EXAMPLES[kind]
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES if page.is_file())
    blocks = dict[str, list[str]](python=[], yaml=[])
    for language, block in re.findall(r"(?ms)^```(python|yaml)\n(.*?)^```", pages):
        if re.search(rf"\b(own/{word}\b|{word}:)", block):
            blocks[language].append(block)
    if len(blocks["python"]) != 1:
        raise ValueError(
            f"expected the example own/{word}, which is copied, once in {PAGES[0]} or {PAGES[1]}, "
            f"found it {len(blocks['python'])} times: restore these pages from git"
        )
    (file,) = blocks["python"]
    path, _, code = file.removeprefix("# ").partition("\n")
    rows = [re.sub(rf"\b{word}\b", name, block) for block in blocks["yaml"]]
    return Path(path).with_stem(name), code, rows


def refuse_name(entries: Any, name: str, place: Any) -> None:
    """Raise a ValueError if a table or file has an entry of this name."""
    if name in entries:
        raise ValueError(f"{place} has an entry {name} already: choose another name")


def add_row(text: str, table: str, row: str) -> str:
    """The YAML text with a row at the end of a table, which may be written as `{}`.

    A ValueError with the row if the result would differ in anything else.
    """
    # The table ends with its last indented line; comments below that are of the next table.
    section = rf"(?m)^{table}:(?: *\{{\}})?(.*\n(?:(?:(?:#.*)?\n)* .*\n)*)"
    changed = re.sub(section, lambda match: f"{table}:{match[1]}  {row}\n", text, count=1)
    rows = (parse(text) or {}).get(table) or {}
    return check_change(text, changed, table, {**rows, **parse(row)}, row)


def replace_source(text: str, source: str) -> str:
    """The YAML text with another `data.source`; the lines of the old one become comments.

    A ValueError with the key if the result would differ in anything else.
    """

    def replace(match: re.Match[str]) -> str:
        return f"  source: {source}\n{indent(dedent(match[0]), '  # ')}"

    old = r"(?m)^  source:.*\n(?:\n*(?:   |  - ).*\n)*"
    changed = re.sub(old, replace, text, count=1)
    section = (parse(text).get("data") or {}) | {"source": parse(source)}
    return check_change(text, changed, "data", section, f"source: {source}")


def check_change(before: str, after: str, key: str, expected: Any, line: str) -> str:
    """The YAML text `after`, if its content is that of `before` with the expected value of a key.

    Else a ValueError with the line for the user to write.
    """
    if parse(after) != {**(parse(before) or {}), key: expected}:
        raise ValueError(
            f"{PARAMS}: expected a section {key} of lines that are indented by two spaces, found "
            f"another form, and wrote nothing. Write it yourself:\n{key}:\n  {line}"
        )
    return after


def parse(text: str) -> Any:
    """Content of a YAML text; None if it cannot be read."""
    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        return None


if __name__ == "__main__":
    run(main)
