"""Turn a source of problems into prompts by split and demonstrations, once, in tokens.

Reads the source that params.yaml names (generated word problems, or files of problems and
conversations). Writes the prompts of the splits train, preference, dev and test, which share no
question; the demonstrations for SFT (the solutions and replies of the train split); the tokenizer;
a data card; and every rejected row with its file, line and reason. A source of which too much is
bad, or whose solutions the answer checker cannot read, is refused.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import model_validator
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import meter, rows
from stages.config import PRESETS_PATH, Params, read_yaml
from stages.models import model_tokenizer, preparation, prompting, size
from stages.models.row_policy import ModelConfig
from stages.params import load_config, print_table
from stages.records import lines
from stages.runtime import outputs, process, runs
from stages.runtime.progress import Progress
from stages.sources import catalogue, problem_files, splitting
from stages.sources.catalogue import PreparationConfig

PREPARED = rows.DATA / "prepared"


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
        size.check_model_files(model["path"])
        facts = size.model_facts(model)
        config = load_config(Config, facts=facts)
        progress = Progress()
        progress.begin(read_counts=lambda: meter.COUNTS)
        with progress.shown(partial(run.display.update, None)):
            prepared = preparation.prepare_problems(config.data, config.model, config.data_seed)
        prompts, source = prepared.encoded.prompts, config.data.source
        card = {
            "source": catalogue.name_of(source), "licence": catalogue.licence_of(source),
            "extraction_rate": prepared.extraction_rate, **prepared.screened.describe(),
            **splitting.describe_splits(prompts, prepared.demonstrations),
        }  # fmt: skip
        if prepared.warnings:
            card["warnings"] = prepared.warnings
        written: dict[str, Sequence[Any]] = {
            f"prompts/{split}.jsonl": split_prompts for split, split_prompts in prompts.items()
        }
        written["demonstrations/demonstrations.jsonl"] = prepared.demonstrations
        written["prepared/quarantine.jsonl"] = prepared.screened.bad
        for report in prepared.screened.reports:
            sys.stdout.write(f"{problem_files.describe_report(report)}\n")
        if model_tokenizer.has_pinned_date(prepared.tokenizer):
            day = f"{model_tokenizer.DAY:%d %B %Y}"
            sys.stdout.write(f"The chat template asks for the date: it is always told {day}.\n")
        for warning in prepared.warnings:
            sys.stdout.write(f"warning: {warning}\n")
        if facts is not None:
            facts = prompting.measure_data(prepared.encoded, facts)
            written["prompts/facts.json"] = [facts]
            print_table(read_yaml(), read_yaml(PRESETS_PATH), facts)
        write(prepared.tokenizer, written, card)
        run.log(0, {f"rows/{name}": float(count) for name, count in card["counts"].items()})


def write(
    tokenizer: PreTrainedTokenizerBase, written: Mapping[str, Sequence[Any]], card: dict[str, Any]
) -> None:
    """Write every output; the data card, with the digests of the others, comes last."""
    base = rows.locate_policy(rows.BASE, 0)
    with ExitStack() as stack:  # all take their places, or on a full disk none does
        for folder in {name.partition("/")[0] for name in written}:
            temporary = stack.enter_context(outputs.replace(rows.DATA / folder))
            temporary.mkdir()
            for path in [Path(name) for name in written if name.startswith(f"{folder}/")]:
                lines.write_lines(temporary / path.name, written[path.as_posix()])
        tokenizer.save_pretrained(stack.enter_context(outputs.replace(base)))
    card["sha256"] = splitting.file_digests(rows.DATA, [*written, str(base.relative_to(rows.DATA))])
    outputs.write_json(PREPARED / "data_card.json", card)


if __name__ == "__main__":
    process.run(main)
