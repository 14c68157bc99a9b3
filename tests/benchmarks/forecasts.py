"""The doctor's forecasts, and what the stages then take: a cut of the study of a pretrained model.

    python -m tests.benchmarks.forecasts [--data FOLDER] [--folder NEW_FOLDER]

Needs the study's model and data (studies/smollm2/README.md), two free cores and an hour. Every
stage of these rows computes with a sixth to a thirtieth of the study's problems and steps, so that
each takes seconds to minutes. `--data`: as of the study's `run.py`. `--folder`: where the copy is
made, which else is deleted at the end.
"""

import argparse
import contextlib
import json
import sys
import tempfile
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest has it: modules that tests share

from study_copy import StudyCopy, load_run

ROWS = [
    "policies/grpo", "policies/dpo", "policies/dpo-ai", "policies/ppo", "rewards/outcome",
    "rewards/process", "episodes/gsm8k-sft",
]  # fmt: skip
"""With what they are made from, a stage of each kind of the study that computes with a model."""
NUM_TRAIN, NUM_TEST, NUM_TRANSFER = 80, 24, 20
"""Problems."""
NEAR = 1.5
"""Ratio of a good forecast and the time, or of the time and the forecast."""
DOCTOR = """
import json
from pathlib import Path
from stages import doctor
from stages.params import adopt_rounding

def report_stages(*arguments):
    forecasts = report(*arguments)
    seconds = {item.stage.name: item.seconds for item in forecasts if item.seconds}
    Path("forecasts.json").write_text(json.dumps(seconds))
    return forecasts

report, doctor.report_stages = doctor.report_stages, report_stages
adopt_rounding()
doctor.main()
"""
"""The doctor, which prints tenths of minutes, writes its seconds to forecasts.json."""


def cut(params: dict[str, Any], presets: dict[str, Any]) -> None:
    """Two seeds, few problems and few steps, but of the study's sizes."""
    load_run().keep_rows(params, [*ROWS])
    params["seeds"] = [0, 1]
    params["data"]["shares"] |= {"preference": 0.25, "dev": 0.1}
    params["grpo"]["num_steps"] = params["ppo"]["num_steps"] = 2
    presets["problem_file"]["starts"] = {"train": 1, "dev": 1, "test": NUM_TRANSFER - 2}


def make_copy(folder: Path, data: Path | None) -> StudyCopy:
    """The cut in a new folder."""
    study = load_run()
    svamp = [*study.convert_svamp(study.read_file("SVAMP.json", data))]
    gsm8k = study.convert_gsm8k(study.read_file("test.jsonl", data))
    rows = svamp[:NUM_TRAIN] + svamp[-NUM_TEST:]
    copy = StudyCopy(folder, rows, islice(gsm8k, NUM_TRANSFER))
    copy.change(cut)
    (copy.path / "study.yaml").rename(copy.path / "params.yaml")
    return copy


def compare_forecasts(folder: Path) -> dict[str, tuple[float, float]]:
    """Stage -> its forecast and what its last run took, in seconds, of those that have run."""
    forecasts, compared = json.loads((folder / "forecasts.json").read_text()), {}
    for name, expected in forecasts.items():
        paths = (folder / "data/runs" / name.replace("@", "/")).glob("*/run.json")
        records = [json.loads(path.read_text()) for path in paths]
        if records:
            last = max(records, key=lambda record: record["ended"])
            compared[name] = expected, last["seconds"]
    return compared


def format_table(compared: dict[str, tuple[float, float]]) -> str:
    """Stages by the time that they took, and how many forecasts are near it."""
    lines = ["| stage | forecast, s | taken, s | forecast / taken |", "|---|---|---|---|"]
    for name, (expected, actual) in sorted(compared.items(), key=lambda item: -item[1][1]):
        lines.append(f"| {name} | {expected:.0f} | {actual:.0f} | {expected / actual:.2f} |")
    ratios = [expected / actual for expected, actual in compared.values()]
    num_near = sum(1 / NEAR <= ratio <= NEAR for ratio in ratios)
    expected, actual = (sum(seconds) for seconds in zip(*compared.values(), strict=True))
    lines.append(f"| all | {expected:.0f} | {actual:.0f} | {expected / actual:.2f} |")
    return "\n".join([
        *lines, "", f"{num_near} of {len(ratios)} forecasts are within a factor of {NEAR} of the "
        f"time; the median ratio is {median(ratios):.2f}.",
    ])  # fmt: skip


def main() -> None:
    """Print the table; what the doctor and the stages print goes to standard error."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.forecasts")
    parser.add_argument("--data", type=Path, metavar="FOLDER")
    parser.add_argument("--folder", type=Path, metavar="NEW_FOLDER")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        copy = make_copy(folder.resolve(), options.data and options.data.resolve())
        copy.run("-c", DOCTOR, stdout=sys.stderr)
        copy.run("-m", "dvc", "repro", stdout=sys.stderr)
        table = format_table(compare_forecasts(copy.path))
    print(table)


if __name__ == "__main__":
    main()
