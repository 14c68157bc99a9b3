"""stages/README.md, and the pages that it links, name all that a row of a table can name."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from stages import plan_checks
from stages.config import PRESETS_PATH, read_yaml
from stages.loops.method import Method
from stages.rows import ENTRY_POINTS

REPOSITORY = Path(__file__).resolve().parents[2]
DOOR = REPOSITORY / "stages/README.md"


def linked_pages() -> Iterator[Path]:
    """The README files that the map links."""
    for link in re.findall(r"\]\(([^)#]+/README\.md)", DOOR.read_text(encoding="utf-8")):
        yield DOOR.parent / link


MAP = "".join(path.read_text(encoding="utf-8") for path in {DOOR, *linked_pages()})


def missing(names: Iterable[str]) -> list[str]:
    return [name for name in names if f"`{name}`" not in MAP]


def literals(schema: dict[str, Any]) -> list[str]:
    """The values of a property that is one of several words."""
    return [schema["const"]] if "const" in schema else schema.get("enum", [])


def kinds(schema: Any) -> Iterator[str]:
    """Every value of a property `kind` anywhere inside a JSON schema."""
    if isinstance(schema, list):
        for item in schema:
            yield from kinds(item)
    if isinstance(schema, dict):
        yield from literals(schema.get("properties", {}).get("kind", {}))
        for item in schema.values():
            yield from kinds(item)


def test_the_map_links_a_page_of_methods_and_of_rewards() -> None:
    folders = {path.parent.resolve() for path in linked_pages()}
    assert {REPOSITORY / "stages/algorithms", REPOSITORY / "stages/rewards"} <= folders


def test_every_preset_is_in_the_map() -> None:
    assert missing(read_yaml(REPOSITORY / PRESETS_PATH)) == []


def test_every_kind_of_choice_is_in_the_map() -> None:
    declared = {
        kind
        for config in plan_checks.load_entry_points().values()
        for kind in kinds(config.model_json_schema())
    }
    assert {"sigmoid", "answer", "mean_minus_std", "prm800k"} <= declared
    assert missing(sorted(declared)) == []


def test_every_choice_of_a_method_of_reinforcement_learning_is_in_the_map() -> None:
    fields = Method.model_json_schema()["properties"]
    choices = {
        name: {word for word in literals(schema) if isinstance(word, str)}
        for name, schema in fields.items()
    }
    words = set().union(*choices.values())
    assert {"group_zscore", "gae", "clip", "k3", "token_truncated", "penalise"} <= words
    assert missing(sorted(words)) == []
    assert [name for name, values in choices.items() if values and name not in MAP] == []


def test_every_entry_point_is_in_the_map() -> None:
    stages = [
        path.stem
        for path in sorted((REPOSITORY / "stages").glob("[!_]*.py"))
        if "\ndef main(" in path.read_text(encoding="utf-8")
    ]
    assert missing([*stages, *ENTRY_POINTS]) == []


def test_every_recipe_is_in_the_map() -> None:
    assert missing(path.stem for path in (REPOSITORY / "stages/recipes").glob("*.yaml")) == []


PAGES = sorted(
    path
    for path in REPOSITORY.rglob("*.md")
    if not {".venv", "venv", "shared"} & set(path.relative_to(REPOSITORY).parts)
)


def exists(name: str, page: Path) -> bool:
    """Whether a path that a page names, without `.py` or with it, is a file or a folder."""
    roots = REPOSITORY, REPOSITORY / "stages", REPOSITORY / "stages/algorithms", page.parent
    return any((root / f"{name}{end}").exists() for root in roots for end in ("", ".py"))


def test_every_link_leads_to_a_file_and_its_heading() -> None:
    def anchors(path: Path) -> set[str]:
        headings = re.findall(r"(?m)^#+ (.*)$", path.read_text(encoding="utf-8"))
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    broken = []
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if not link.startswith("http") and (
                not target.exists() or (anchor and anchor not in anchors(target))
            ):
                broken.append(f"{page.relative_to(REPOSITORY)}: {link}")
    assert broken == []


def test_every_source_file_that_a_page_names_exists() -> None:
    folders = {path.name for path in (REPOSITORY / "stages").rglob("*") if path.is_dir()}
    folders |= {"stages", "flows", "tests"}
    absent = []
    for page in PAGES:
        text = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
        names = re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]*(?:\.(?:py|md|sh|jsonl))?)`", text)
        names += re.findall(r"`([a-z_]+\.(?:py|sh))`", text)
        absent += [
            f"{page.relative_to(REPOSITORY)}: {name}"
            for name in names
            if name.split("/")[0] in {*folders, name} and not exists(name, page)
        ]
    assert absent == []
