"""Step labels from a file of another project, as rows for the process model.

    python -m stages.import_steps <name> <source> <file>

Reads PRM800K (Lightman et al. 2023), Math-Shepherd (Wang et al. 2024), MATH-APS (Luo et al.
2024) or ProcessBench (Zheng et al. 2024), and the tokenizer; writes solutions tokenised step by
step with their labels, and every row that is left out, with its line and the reason. What a
label means in each format, and what is done with neutral ratings, alternatives and steps after
an error, is stated in stages/sources/steps. Solutions that are too long are left out whole and
counted apart. ProcessBench is for `dev` and `test` of evaluate_process_reward, not to train on.
"""

from pathlib import Path
from typing import Any

from pydantic import Field

from stages import params
from stages.models import model_tokenizer, step_prompting
from stages.params import Params
from stages.records import lines
from stages.records.problems import BadRow
from stages.runtime import outputs, process, runs
from stages.sources import quarantine
from stages.sources.steps import catalogue, summary

TOKENIZER = Path("data/prepare_data/tokenizer")
OUTPUT = Path("data/import_steps")
TABLES = ("import_steps",)


class ImportSteps(Params):
    """One source of step labels."""

    format: catalogue.Format
    """The format; `kind` says which."""
    licence: str
    """Under which licence the data may be used; recorded with the parameters."""
    prompt_template: str = Field(pattern=r"\{question\}")
    """As prepare_data.prompt_template."""
    separator: str = Field(min_length=1)
    """What stands behind a step, as label_steps and train_process_reward split on."""
    max_tokens: int = Field(gt=0)
    """Solutions that are longer, with prompt and step tokens, are left out; not more than the
    model has positions."""
    max_bad_share: float = Field(ge=0, lt=1)
    """Largest share of rows and solutions that cannot be used; above it the file is refused."""
    max_long_share: float = Field(ge=0, lt=1)
    """Largest share of solutions that are too long; above it the file is refused."""


class Config(Params):
    """What import_steps reads of presets.yaml."""

    import_steps: ImportSteps


def main(name: str, source: str, file: str) -> None:
    """Write `steps.jsonl`, `quarantine.jsonl` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"import_steps@{name}", output) as run:
        config = params.load(Config, pick={"import_steps": source}).import_steps
        path = Path(file)
        found = list(catalogue.solutions(path, config.format))
        bad = [row for row in found if isinstance(row, BadRow)]
        raws = [raw for row in found if not isinstance(row, BadRow) for raw in row]
        encoded = step_prompting.encode(
            raws,
            model_tokenizer.load(TOKENIZER),
            template=config.prompt_template,
            separator=config.separator,
            max_tokens=config.max_tokens,
        )
        bad += summary.bad_rows(path.name, encoded.rejected)
        over_long = summary.bad_rows(path.name, encoded.over_long)
        limits = {"max_bad_share": (bad, config.max_bad_share)}
        limits |= {"max_long_share": (over_long, config.max_long_share)}
        for limit, (left_out, share) in limits.items():
            place = f"import_steps.{source}.{limit}"
            num_rows = len(raws) + sum(isinstance(row, BadRow) for row in found)
            quarantine.check_share(left_out, num_rows, max_share=share, limit=place)
        metrics: dict[str, Any] = {"generated_tokens": 0, "trained_tokens": 0, "rows": len(found)}
        metrics["quarantined"] = quarantine.count_by_kind([*bad, *over_long])
        metrics |= summary.describe(encoded.rows)
        run.log(0, {f"solutions/{key}": value for key, value in metrics["solutions"].items()})
        with outputs.replace(output / "steps.jsonl") as temporary:
            lines.write(temporary, encoded.rows)
        with outputs.replace(output / "quarantine.jsonl") as temporary:
            lines.write(temporary, sorted([*bad, *over_long], key=lambda row: row.line))
        outputs.write_json(output / "metrics.json", metrics)


if __name__ == "__main__":
    process.run(main)
