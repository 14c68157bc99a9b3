"""Small files with telling names."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path for folder in ("stages", "flows") for path in (REPOSITORY / folder).rglob("*.py")
)
ENTRY_POINTS = sorted(
    path
    for path in (REPOSITORY / "stages").glob("*.py")
    if "def main(" in path.read_text(encoding="utf-8")
)
MAX_LINES = 250
MAX_ENTRY_POINT_LINES = 80
MAX_FILES = {"stages": 230, "flows": 12}
MAX_LINES_IN_ALL = 29_950
"""Of stages/: what a team can know by heart. A user's own model (rules for `auto`, the doctor, vLLM
inside RL, conversations, several processes) took a tenth more than the embedded one alone."""
FORBIDDEN_NAMES = {
    "utils", "util", "common", "base", "helpers", "helper", "misc", "core", "tools", "lib",
}  # fmt: skip


def code_lines(source: str) -> int:
    """Lines that are neither blank, nor comment, nor part of a docstring."""
    prose: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if constant and isinstance(node.value.value, str):
            prose.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    ignored = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
        tokenize.ENCODING, tokenize.ENDMARKER,
    }  # fmt: skip
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in ignored:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - prose)


def test_code_lines_are_counted_without_prose() -> None:
    source = '"""Doc\nstring."""\n\n# why\nclass A:\n    x: int\n    """What x is."""\n\n'
    assert code_lines(source) == 2
    assert code_lines('text = """two\nlines"""\ny = f(\n    1,\n)\n') == 5


def name(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


@pytest.mark.parametrize("path", ENTRY_POINTS, ids=name)
def test_an_entry_point_is_short(path: Path) -> None:
    count = code_lines(path.read_text(encoding="utf-8"))
    assert count <= MAX_ENTRY_POINT_LINES, f"{count} lines of code: move work into a lower layer"


def test_there_are_entry_points() -> None:
    assert len(ENTRY_POINTS) >= 12


def test_every_file_can_be_read_at_one_go() -> None:
    lengths = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {file: count for file, count in lengths.items() if count > MAX_LINES} == {}


@pytest.mark.parametrize("folder", MAX_FILES)
def test_there_are_few_files(folder: str) -> None:
    found = list((REPOSITORY / folder).rglob("*.py"))
    assert len(found) <= MAX_FILES[folder], "put an idea of one importer into its importer"


def test_the_stages_have_few_lines() -> None:
    files = (REPOSITORY / "stages").rglob("*.py")
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in files) <= MAX_LINES_IN_ALL


def test_packages_are_empty_files() -> None:
    full = [name(path) for path in SOURCES if path.name == "__init__.py" and path.stat().st_size]
    assert full == ["stages/__init__.py"]  # says why


def test_every_folder_of_sources_is_a_package() -> None:
    folders = {path.parent for path in SOURCES}
    assert [name(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_no_file_is_a_drawer_for_everything() -> None:
    assert [name(path) for path in SOURCES if FORBIDDEN_NAMES & set(path.stem.split("_"))] == []
    folders = {parent for path in SOURCES for parent in path.parents if parent != REPOSITORY}
    inside = [folder for folder in folders if REPOSITORY in folder.parents]
    assert [name(folder) for folder in inside if folder.name in FORBIDDEN_NAMES] == []


def test_every_file_says_what_it_is_for() -> None:
    silent = [
        name(path)
        for path in SOURCES
        if path.name != "__init__.py"
        and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_tests_mirror_the_sources() -> None:
    # tests/stages/a/test_b.py tests stages/a/b.py, or the package stages/a/b
    missing = []
    for part in ("stages", "flows"):
        for test in (REPOSITORY / "tests" / part).rglob("test_*.py"):
            tested = REPOSITORY / test.relative_to(REPOSITORY / "tests").parent
            stem = tested / test.stem.removeprefix("test_")
            if not (stem.with_suffix(".py").exists() or stem.is_dir()):
                missing.append(name(test))
    allowed = {
        "tests/flows/test_deployment.py",  # of prefect.yaml
        "tests/flows/test_why_command.py",  # of why as it is called
        "tests/stages/test_rule_thresholds.py",  # of rules, by hand
        "tests/stages/test_presets.py",  # of presets.yaml
        "tests/stages/test_train_rl.py",  # of train_ppo and train_grpo, which share most
        "tests/stages/loops/test_ppo_experience.py",  # of one side of loops/ppo
        "tests/stages/loops/test_step_rewards_of_rollouts.py",  # of one side of loops/rl_run
        "tests/stages/loops/test_reward_of_rollouts.py",  # of the other
        "tests/stages/loops/test_preference_losses.py",  # of choices in loops/preference
        "tests/stages/loops/test_group_rl_checks.py",  # of one side of loops/group_rl
        "tests/stages/loops/test_kl_penalty.py",  # of one side of loops/divergence
        "tests/stages/loops/test_outcome.py",  # of one side of loops/reward
        "tests/stages/loops/test_step_targets.py",  # of one side of loops/process_reward
        "tests/stages/loops/test_process_summary.py",  # of the other
        "tests/stages/studies/test_probe_sources.py",  # of one side of probe_questions
        "tests/stages/studies/test_studies_run.py",  # of all studies in one repository
    }
    assert set(missing) - allowed == set()
