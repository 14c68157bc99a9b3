"""The commands that meet a bad input first, in this process, and what they tell their user."""

import contextlib
import io
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import stage_inputs
import tiny_checkpoints
from bad_inputs import checkpoints, pairs, parameters, raw_files, table_rows
from bad_inputs.case import PARAMS, PRESETS, Case, lines, whole
from ruamel.yaml import YAML

from stages import label_people, plan, plan_checks, prepare_data, rows, tables
from stages.models import policy
from stages.models.model_tokenizer import train_tokenizer
from stages.records import lines as records

ROOT = Path(__file__).parents[2]
REFUSALS = Path(__file__).parent / "refusals.yaml"
WORKS = "works"
HEAD = "The plan is not valid; correct this:\n"
OLD = ("data/prompts/train.jsonl", "data/prepared/data_card.json", "data/plan.json",
       "data/pairs/mine/train.jsonl")  # fmt: skip
"""Outputs of an earlier run, which no refusal may touch."""
TINY = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 32,
        "max_length": 2048, "vocab_size": 800}  # fmt: skip


class Kind(NamedTuple):
    """Bad inputs of a kind, where they are put, and who meets them."""

    cases: Sequence[Case]
    begin: Callable[[], object]
    meet: Callable[[], object]


def repository() -> None:
    """The files that `plan` reads."""
    for name in (PARAMS, "dvc.yaml", PRESETS):
        Path(name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, name)


def check() -> None:
    """`python -m stages.plan --check`."""
    with contextlib.redirect_stdout(io.StringIO()):
        plan.main("--check")


def source(**model: Any) -> None:
    """What `prepare_data` reads: a source of good problems."""
    Path("stages").mkdir()
    Path(PRESETS).write_text("{}\n", encoding="utf-8")
    whole(raw_files.FILE, lines(*raw_files.GOOD))()
    section = {
        "source": {"path": raw_files.FILE, "licence": "CC0-1.0"},
        "prompt_template": "Solve: {question}\n", "mixture": None,
        "shares": {"preference": 0.2, "dev": 0.2, "test": 0.2},
        "max_prompt_tokens": 100, "max_completion_tokens": 100, "max_bad_share": 0.01,
    }  # fmt: skip
    base = {"path": None, "revision": None, "thinking": None, "tiny": TINY} | model
    with Path(PARAMS).open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump({"data_seed": 0, "model": base, "data": section}, file)


def no_file() -> None:
    """`prepare_data`'s files without that of the problems."""
    source()
    Path(raw_files.FILE).unlink()
    Path(raw_files.FILE).parent.rmdir()


def model() -> None:
    """`prepare_data`'s files with a model of one's own."""
    source(path="model")
    checkpoints.save(checkpoints.MODEL)


def prepare() -> None:
    """`prepare_data`, which shows what `auto` is."""
    with contextlib.redirect_stdout(io.StringIO()):
        prepare_data.main()


def load() -> None:
    """As the first stage that trains."""
    policy.load_policy(checkpoints.MODEL, tiny_checkpoints.compute(), tiny_checkpoints.CPU)


def people() -> None:
    """What `label_people` reads: a file of pairs, a tokenizer, and prompts that it leaves out."""
    words = train_tokenizer(["Human: how do I do this? Assistant: you can, I think."], 700)
    words.save_pretrained(rows.locate_policy(rows.BASE, 0))
    for split in ("dev", "test"):
        records.write_lines(rows.PROMPTS / f"{split}.jsonl", [])
    stage_inputs.configure(pairs.PRESET)


def label() -> None:
    """The stage of the row `mine`."""
    label_people.main(
        "label_people", "mine", "--by", "people", "--preset", "mine", "--on", "raw/mine.jsonl"
    )


KINDS = {
    "parameters": Kind(parameters.CASES, repository, check),
    "table_rows": Kind(table_rows.CASES, repository, check),
    "raw_files": Kind(raw_files.CASES, no_file, prepare_data.main),
    "pairs": Kind(pairs.CASES, people, label),
    "checkpoints": Kind(checkpoints.CASES, model, prepare),
    "weights": Kind(checkpoints.LOADED, model, load),
}


@contextlib.contextmanager
def entry_points():
    """Those of this repository, imported once."""
    modules = plan_checks.load_entry_points()
    kept = plan_checks.load_entry_points, tables.OWN_SOURCES
    folders = {table: ROOT / folder for table, folder in tables.OWN_SOURCES.items()}
    plan_checks.load_entry_points, tables.OWN_SOURCES = lambda: modules, folders
    try:
        yield
    finally:
        plan_checks.load_entry_points, tables.OWN_SOURCES = kept


def earlier_content(name: str) -> str:
    """An output of an earlier run, whose data card has no test problems; a plan with one pool."""
    if name == "data/plan.json":
        return '{"pools": {"earlier": {}}}\n'
    return f'{{"counts": {{}}, "of": "{name}"}}\n'


def put_in(kind: Kind, case: Case) -> None:
    """The files around it, outputs of an earlier run, and the bad input, in the working folder."""
    kind.begin()
    for name in OLD:
        whole(name, earlier_content(name))()
    case.put()


def told(kind: Kind) -> str:
    """What the user reads: the message of a refusal; any other error goes through."""
    try:
        kind.meet()
    except SystemExit as refusal:
        return str(refusal).removeprefix(HEAD)
    except ValueError as refusal:
        if type(refusal) is not ValueError:  # a library's own
            raise
        return str(refusal)
    return WORKS


def expected() -> dict[str, dict[str, list[str] | str]]:
    """Kind -> bad input -> what its refusal must name, or WORKS."""
    return YAML(typ="safe").load(REFUSALS)
