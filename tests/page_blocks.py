"""Blocks of code of every page, and the commands of those for a shell."""

import re
import shlex
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
OWN_FILE = re.compile(r"# (stages/\w+/own/\w+\.py)\n")
PRESETS = "# stages/presets.yaml\n"
WHERE = re.compile(r"not\s+run\s+in\s+tests|(?<![\w/])((?:tests|\.ci)/[\w./-]+)`?\s+runs")
"""Words with which a page says that nothing runs a block or a line, or what else does."""


@dataclass(frozen=True)
class Command:
    words: tuple[str, ...]
    """Words without the settings of variables before them."""
    place: str
    """Words on where it runs, from its comment or the text above its block."""
    folder: Path
    """Folder in which it runs: the root, or that of a `cd` before it."""


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    above: str
    """Paragraph above it."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def kind(self) -> str:
        """Kind of test, by language and first line; "" if it has none."""
        match self.language:
            case "mermaid" | "text":
                return self.language  # a drawing; what a command prints, or a formula
            case "python":
                return "own file" if OWN_FILE.match(self.text) else "script"
            case "yaml" if self.text.startswith(PRESETS):
                return "presets"
            case "yaml":
                return "deployment" if self.text.startswith("- name:") else "rows"
            case "bash":
                return "commands"
        return ""

    @property
    def commands(self) -> list[Command]:
        place, folder, commands = find_place(self.above), ROOT, list[Command]()
        for line in self.text.replace("\\\n", " ").splitlines():
            code, comment = split_comment(line)
            tokens = shlex.shlex(code, posix=True, punctuation_chars="&|;")
            tokens.whitespace_split, tokens.commenters, words = True, "", list[str]()
            for token in [*tokens, ";"]:
                if set(token) <= set("&|;"):
                    while words and re.match(r"[A-Z_0-9]+=", words[0]):
                        del words[0]
                    if words:
                        of_line = find_place(comment) or place
                        commands.append(Command(tuple(words), of_line, folder))
                    if words[:1] == ["cd"] and (ROOT / words[1]).is_dir():
                        folder = ROOT / words[1]
                    words = []
                else:
                    words.append(token)
        return commands


def split_comment(line: str) -> tuple[str, str]:
    """A line of a shell without its comment, and the comment."""
    for match in re.finditer(r"(?:^|\s)#", line):
        if line[: match.start()].count("'") % 2 == line[: match.start()].count('"') % 2 == 0:
            return line[: match.start()], line[match.start() :]
    return line, ""


def find_place(text: str) -> str:
    match = WHERE.search(text)
    if match and match[1] and not (ROOT / match[1].rstrip(".")).exists():
        raise ValueError(f"a page says that {match[1]} runs something: there is no such file")
    return match[0] if match else ""


@cache
def list_pages() -> list[Path]:
    """Pages that git tracks or could, except reports, which programs write."""
    listed = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "*.md"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.splitlines()
    return [
        Path(name) for name in sorted(names) if not name.startswith("report", name.rfind("/") + 1)
    ]


@cache
def list_blocks() -> list[Block]:
    blocks = list[Block]()
    for page in list_pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        for match in re.finditer(r"(?ms)^( *)```(\w*)[^\n]*\n(.*?)^ *```$", text):
            before = text[: match.start()]
            prose = re.sub(r"(?ms)^ *```.*?^ *```$", "", before)
            blocks.append(
                Block(
                    page=page.as_posix(), line=before.count("\n") + 1, language=match[2],
                    text=match[3], above=prose.rstrip().rpartition("\n\n")[2],
                )
            )  # fmt: skip
    return blocks


def blocks_of(kind: str) -> list[Block]:
    return [block for block in list_blocks() if block.kind == kind]
