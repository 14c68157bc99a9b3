"""Tokenize a source of problems, once: prompts by split, and demonstrations.

Reads the source that params.yaml names (generated problems, files of problems and conversations, or
a generator of the user's). Writes the prompts of the splits train, preference, dev and test, which
share no question; the demonstrations for SFT (the solutions and replies of the train split); the
tokenizer; a data card; and every rejected row with its file, line and reason. A source with too
many bad rows, or with solutions that the answer checker cannot read, is refused.
"""

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import model_validator

from stages import meter, rows
from stages.auto import Facts
from stages.config import PRESETS_PATH, Params, read_yaml
from stages.models import model_files, model_tokenizer, preparation, size
from stages.models.model_files import Origin
from stages.models.preparation import DEMONSTRATIONS, PreparedProblems
from stages.models.row_policy import ModelConfig
from stages.params import load_config, pick_presets, print_table
from stages.records import lines
from stages.runtime import outputs, process, runs
from stages.runtime.progress import Progress
from stages.sources import catalogue, problem_files, splitting
from stages.sources.catalogue import PreparationConfig, SourceConfig

PREPARED = rows.DATA / "prepared"
PLAN = rows.DATA / "plan.json"
"""File with the rows of every table, which change only what is printed."""


class Config(Params):
    """Keys of params.yaml that prepare_data reads."""

    data_seed: int
    model: ModelConfig
    data: PreparationConfig

    @model_validator(mode="after")
    def _rows_fit_the_model(self) -> "Config":
        longest = max(self.data.max_prompt_tokens, self.data.max_message_tokens)
        self.model.check_length(longest + self.data.max_completion_tokens)
        return self


def main() -> None:
    """Write prompts, demonstrations, tokenizer, data card and quarantine."""
    with runs.start("prepare_data") as run:
        model = read_yaml()["model"]
        model_files.check_model_files(model["path"])
        facts = size.model_facts(model)
        config = load_config(Config, facts=facts)
        progress = Progress()
        progress.begin(read_counts=lambda: meter.COUNTS)
        with progress.shown(partial(run.display.update, None)):
            prepared = preparation.prepare_problems(config.data, config.model, config.data_seed)
            for report in prepared.screened.reports:
                sys.stdout.write(f"{problem_files.describe_report(report)}\n")
            if model_tokenizer.has_pinned_date(prepared.tokenizer):
                day = f"{model_tokenizer.DAY:%d %B %Y}"
                sys.stdout.write(f"The chat template asks for the date: it always gets {day}.\n")
            origin = model_files.describe_origin(model["path"])
            card = write(prepared, config.data.source, facts, origin)
        for warning in prepared.warnings:
            sys.stdout.write(f"warning: {warning}\n")
        run.log(0, {f"rows/{name}": float(count) for name, count in card["counts"].items()})


def write(
    prepared: PreparedProblems, source: SourceConfig, facts: Facts | None, origin: Origin | None
) -> dict[str, Any]:
    """Write every output, row by row; the data card comes last, with the digests of the others."""
    base = rows.locate_policy(rows.BASE, 0)
    paths = {split: f"prompts/{split}.jsonl" for split in splitting.SPLITS}
    paths[DEMONSTRATIONS] = f"{DEMONSTRATIONS}/demonstrations.jsonl"
    written = [*paths.values(), "prepared/quarantine.jsonl"]
    with ExitStack() as stack:  # all folders are replaced, or, on a full disk, none is
        folders = dict[str, Path]()
        for name in ("prompts", DEMONSTRATIONS, "prepared"):
            folders[name] = stack.enter_context(outputs.replace(rows.DATA / name))
            folders[name].mkdir()
        with ExitStack() as closing:
            files = {
                name: closing.enter_context(lines.open_for_lines(_in_folders(folders, path)))
                for name, path in paths.items()
            }
            for name, row in prepared.rows:
                files[name].write(lines.to_json_line(row))
        lines.write_lines(folders["prepared"] / "quarantine.jsonl", prepared.screened.bad)
        if facts is not None:
            facts = preparation.measure_data(prepared.summary, facts)
            written.append("prompts/facts.json")
            lines.write_lines(folders["prompts"] / "facts.json", [facts])
            presets = read_yaml(PRESETS_PATH)
            if PLAN.is_file():
                presets = pick_presets(presets, outputs.read_json(PLAN))
            print_table(read_yaml(), presets, facts)
        base_folder = stack.enter_context(outputs.replace(base))
        prepared.tokenizer.save_pretrained(base_folder)
        if origin is not None:  # so that rows which start from other weights run again
            text = origin.model_dump_json(indent=2) + "\n"
            (base_folder / model_files.ORIGIN).write_text(text, encoding="utf-8")
    card = {
        "source": catalogue.name_of(source), "licence": catalogue.licence_of(source),
        "extraction_rate": prepared.extraction_rate, **prepared.screened.describe(),
        **prepared.summary.describe(),
    }  # fmt: skip
    if origin is not None:
        card["model"] = origin.model_dump()
    if prepared.warnings:
        card["warnings"] = prepared.warnings
    card["sha256"] = splitting.file_digests(rows.DATA, [*written, str(base.relative_to(rows.DATA))])
    outputs.write_json(PREPARED / "data_card.json", card)
    return card


def _in_folders(folders: Mapping[str, Path], path: str) -> Path:
    """The path with its first folder replaced by the temporary one."""
    folder, _, name = path.partition("/")
    return folders[folder] / name


if __name__ == "__main__":
    process.run(main)
