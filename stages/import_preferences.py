"""People's preferences from a file, as pairs for the reward model and for DPO.

    python -m stages.import_preferences <name> <source> <file>

Reads JSON lines with a chosen and a rejected answer to one prompt, as text, as chat, or as
transcripts (HH-RLHF, Bai et al. 2022, https://arxiv.org/abs/2204.05862), and the tokenizer;
writes pairs in tokens for training and held out, and every row that is left out, with its line
and the reason. Which side a pair is on depends on how its conversation opens (the text before
the first answer) and on nothing else: one prompt is never on both sides, and neither are two
turns of one conversation. Rows that are too long are left out whole and counted apart.
"""

from pathlib import Path
from typing import Any

from pydantic import Field

from stages import params
from stages.models import model_tokenizer, preference_prompting
from stages.params import Params
from stages.records import lines
from stages.records.problems import BadRow
from stages.runtime import outputs, process, runs
from stages.sources import quarantine
from stages.sources.preferences import catalogue, splitting, summary
from stages.sources.preferences.columns import Columns

TOKENIZER = Path("data/prepare_data/tokenizer")
OUTPUT = Path("data/import_preferences")
TABLES = ("import_preferences",)


class ImportPreferences(Params):
    """One source of preferences."""

    format: catalogue.Format
    """text: three columns of text; chat: lists of messages; transcript: HH-RLHF's form."""
    columns: Columns
    """What the file calls its columns."""
    licence: str
    """Under which licence the data may be used; recorded with the parameters."""
    heldout_share: float = Field(gt=0, lt=1)
    """Share of the conversations that reward models are tested on."""
    max_tokens: int = Field(gt=0)
    """Pairs that are longer, prompt and longer answer together, are left out; not more than the
    model has positions."""
    max_bad_share: float = Field(ge=0, lt=1)
    """Largest share of rows that cannot be used; above it the file is refused."""
    max_long_share: float = Field(ge=0, lt=1)
    """Largest share of rows that are too long; above it the file is refused."""


class Config(Params):
    """What import_preferences reads of presets.yaml."""

    import_preferences: ImportPreferences


def main(name: str, source: str, file: str) -> None:
    """Write `train.jsonl`, `heldout.jsonl`, `quarantine.jsonl` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"import_preferences@{name}", output) as run:
        config = params.load(Config, pick={"import_preferences": source}).import_preferences
        path = Path(file)
        rows = list(catalogue.pairs(path, config.format, config.columns))
        bad = [row for row in rows if isinstance(row, BadRow)]
        raws = [row for row in rows if not isinstance(row, BadRow)]
        tokenizer = model_tokenizer.load(TOKENIZER)
        encoded = preference_prompting.encode(raws, tokenizer, max_tokens=config.max_tokens)
        bad += summary.bad_rows(path.name, encoded.rejected)
        over_long = summary.bad_rows(path.name, encoded.over_long)
        limits = {"max_bad_share": (bad, config.max_bad_share)}
        limits |= {"max_long_share": (over_long, config.max_long_share)}
        for limit, (left_out, share) in limits.items():
            place = f"import_preferences.{source}.{limit}"
            quarantine.check_share(left_out, len(rows), max_share=share, limit=place)
        sides = splitting.split(encoded.pairs, config.heldout_share)
        metrics: dict[str, Any] = {"generated_tokens": 0, "trained_tokens": 0}
        metrics |= {"rows": len(rows), "quarantined": quarantine.count_by_kind([*bad, *over_long])}
        metrics |= {side: summary.describe(pairs) for side, pairs in sides.items()}
        for side, pairs in sides.items():
            run.log(0, {f"{side}/{key}": value for key, value in metrics[side].items()})
            with outputs.replace(output / f"{side}.jsonl") as temporary:
                lines.write(temporary, pairs)
        with outputs.replace(output / "quarantine.jsonl") as temporary:
            lines.write(temporary, sorted([*bad, *over_long], key=lambda row: row.line))
        outputs.write_json(output / "metrics.json", metrics)


if __name__ == "__main__":
    process.run(main)
