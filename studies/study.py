"""Frame of a study: its parameters, its run, its outputs.

A study answers one question about a finished run; it runs only on request. It works for each seed:

    data/studies/<study>/rows/<seed>/   measurements, one row per line
    data/studies/<study>/metrics.json   the numbers, report.md in words, plots/
    data/studies/<study>/journal/       its metrics by step
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pydantic
from jaxtyping import Float
from pydantic import Field

from stages import auto
from stages.algorithms.statistics import crossed_means
from stages.config import PARAMS_PATH, Params, error_messages, pick_sections, read_yaml
from stages.loops.run import Run
from stages.params import read_facts
from stages.records.metrics import with_interval
from stages.report import markdown
from stages.rows import DATA, Row
from stages.runtime import outputs, runs, seeds
from stages.runtime.runs import StageRun

STUDIES = DATA / "studies"
DEFINITIONS = Path("studies/studies.yaml")
"""Stages of all studies."""
DVC_YAML = Path("studies/dvc.yaml")
"""Stages of the studies that were run; `python -m studies` writes it."""
STUDY_PARAMS = Path("studies/params.yaml")
ConfigT = TypeVar("ConfigT", bound=Params)
ResultT = TypeVar("ResultT")


class Certainty(Params):
    """Confidence intervals of a study."""

    confidence: float = Field(gt=0, lt=1)
    """Coverage of the intervals."""


def estimate_interval(
    values: Float[np.ndarray, "seed problem"], *, confidence: float, is_rate: bool = False
) -> dict[str, float]:
    """Interval `{value, low, high}` over seeds and problems; for one problem without width.

    `is_rate`: values and interval are within [0, 1].
    """
    value = low = high = values.mean()
    if values.shape[1] > 1:
        estimate = crossed_means.estimate_means(
            values[..., None], confidence=confidence, largest=float(is_rate)
        )
        value, low, high = (bound.item() for bound in estimate[:3])
    if is_rate:
        low, high = max(0.0, low), min(1.0, high)
    return with_interval(value, low, high)


def estimate_gain(
    differences: Float[np.ndarray, "seed problem"], *, confidence: float
) -> dict[str, float]:
    """Interval and two-sided p-value `{value, low, high, p}` of differences of rates, in pairs."""
    estimate = crossed_means.estimate_means(
        differences[..., None], confidence=confidence, largest=1.0
    )
    value, low, high = (bound.item() for bound in estimate[:3])
    return with_interval(value, low, high) | {"p": estimate.p_value.item()}


def explain_no_verdict(num_seeds: int) -> str:
    """Sentence of a report with too few seeds for a verdict; else empty."""
    fewest = crossed_means.MIN_SEEDS
    if num_seeds >= fewest:
        return ""
    seeds = f"{num_seeds} seed{'s' if num_seeds > 1 else ''}"
    return f"No verdict from {seeds}: train at least {fewest}, each from the start."


def render(study: str, **values: Any) -> str:
    """Report of a study, from its template `<study>.md.j2` beside this file."""
    return markdown.render_template(Path(__file__).with_name(f"{study}.md.j2"), **values)


def load_study_config(config: type[ConfigT], study: str) -> ConfigT:
    """A `config` from its keys of params.yaml, and those of studies/params.yaml with key `study`.

    A ValueError lists all missing, unknown or mistyped keys.
    """
    content, study_params = read_yaml(PARAMS_PATH), read_yaml(STUDY_PARAMS)
    of_studies = {study: None, **pick_sections(config, study_params)}
    selected = pick_sections(config, content) | {"studies": of_studies}
    resolved, _ = auto.resolve(selected, read_facts(content), content)
    resolved |= resolved.pop("studies")
    try:
        return config.model_validate(resolved)
    except pydantic.ValidationError as error:
        lines = "\n  ".join(error_messages(error.errors(), resolved))
        raise ValueError(f"{PARAMS_PATH} or {STUDY_PARAMS} is not valid:\n  {lines}") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """Running study."""

    run: StageRun
    rows: Path
    """Folder of the rows, with one folder per seed, made here."""
    plots: Path
    """Empty folder for plots; exists if the study draws any."""
    folder: Path
    """Folder of all outputs of the study."""

    def for_each_seed(
        self, numbers: list[int], work: Callable[[Run, Path], ResultT], *, gpu: bool = True
    ) -> dict[int, ResultT]:
        """Results of `work` for each seed, side by side, with the folder for the seed's rows.

        See `seeds.for_each`; `gpu` is false if other processes compute.
        """
        of_study = Run(
            row=Row(name=self.run.name), config=None, seed=numbers[0], outputs=[self.rows],
            folder=self.run.folder, log=self.run.log,
        )  # fmt: skip
        return seeds.for_each(
            lambda run: work(run, run.output), of_study, numbers, self.run, gpu=gpu
        )

    def write(self, metrics: dict[str, Any], report: str) -> None:
        """Write metrics.json and report.md."""
        outputs.write_json(self.folder / "metrics.json", metrics)
        with outputs.replace(self.folder / "report.md") as temporary:
            temporary.write_text(report, encoding="utf-8")


@contextmanager
def start_study(name: str, *, rows: bool = True, plots: bool = True) -> Iterator[Study]:
    """Start a run of `<study>` or `<study>@<variant>`; `rows`, `plots`: whether it writes them.

    Rows and plots replace the old ones when the study ends.
    """
    paths = {"folder": STUDIES / name.replace("@", "/")}
    with ExitStack() as stack:
        run = stack.enter_context(runs.start(f"{DVC_YAML}:{name}"))
        for word, has_output in (("rows", rows), ("plots", plots)):
            paths[word] = paths["folder"] / word
            if has_output:
                paths[word] = stack.enter_context(outputs.replace(paths[word]))
                paths[word].mkdir()
        yield Study(run=run, **paths)
