"""Check a plan before it runs: memory, time, and what cannot work.

    python -m stages.doctor [--gpu-gib 80] [--recompute train@sft]

Prints the GPU, the versions of packages, and one demonstration as the model will read it; the base
model's speed in each arithmetic, measured for some seconds (`planning/speed`); for each stage, its
memory (`planning/cost`: its loop on fake tensors), whether it fits, and the expected tokens and
minutes; the difference that the comparison can detect (`report/forecast`); and every problem, with
what to change: the exit code is then 1. Writes nothing. With `--recompute` the last line is True or
False, for `stage.run`: whether that stage recomputes activations if
`compute.gradient_checkpointing` is auto.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from stages import auto, tables
from stages.config import PARAMS_PATH, PRESETS_PATH, read_yaml
from stages.loops import overlap
from stages.params import adopt_rounding
from stages.planning import checkup, speed
from stages.planning.checkup import GIB, Forecast, Machine, Model
from stages.planning.jobs import Plan, Stage, Work, list_stages
from stages.planning.speed import Arithmetic, Rates
from stages.report import forecast as detection
from stages.runtime import process
from stages.sources import problem_files


def main(*words: str) -> None:
    """Print the report; exit with code 1 if there is a problem."""
    parser = argparse.ArgumentParser(prog="python -m stages.doctor")
    parser.add_argument("--gpu-gib", type=float, help="plan for a GPU of this size")
    parser.add_argument("--recompute", metavar="STAGE", help="whether it recomputes activations")
    options, console = parser.parse_args(words), Console()
    check = subprocess.run([sys.executable, "-m", "stages.plan", "--check"], check=False)
    import datasets.config
    import huggingface_hub.constants

    # No downloads in this process: a missing file raises an error that says so.
    huggingface_hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    # A trial samples in its own process, where its memory is counted, not in a sampler process.
    os.environ.pop(overlap.SAMPLERS, None)
    if check.returncode:
        with suppress(OSError, ValueError, TypeError, KeyError):  # the check has listed why
            report_inputs(read_yaml(), options.gpu_gib, console)
        sys.exit("There is no forecast of a plan that is not valid: correct what is listed above.")
    recipes = [Path(recipe) for recipe in read_yaml(Path("dvc.yaml")).get("vars") or []]
    rows, _ = tables.read_tables([PARAMS_PATH, *recipes])
    content, presets = read_yaml(), read_yaml(PRESETS_PATH)
    try:
        machine, software, model = report_inputs(content, options.gpu_gib, console)
    except (OSError, ValueError) as error:
        sys.exit(f"prepare_data would fail (nothing is downloaded here): {error}")
    content, _ = auto.resolve({**content, "presets": presets}, model.facts, strict=False)
    presets = content.pop("presets")
    plan = Plan(content=content, presets=presets, rows=rows, data=model.data)
    stages = list(list_stages(plan))
    if options.recompute:
        stage = next(stage for stage in stages if stage.name == options.recompute)
        console.print(checkup.needs_recomputation(stage, model, machine, plan))
        return
    forecasts = report_stages(stages, model, machine, plan, console)
    design = detection.plan_comparison(content, rows, model.data.prompts["test"])
    console.print(detection.describe_forecast(design), markup=False, highlight=False)
    problems = list(checkup.find_problems(model, stages, plan, software))
    problems += join_problems((item.stage.name, item.problem) for item in forecasts if item.problem)
    if problems:
        sys.exit("What cannot work:\n" + "\n".join(f"  {problem}" for problem in problems))
    console.print("No problem was found.")


def report_inputs(
    content: Mapping[str, Any], gpu_gib: float | None, console: Console
) -> tuple[Machine, dict[str, str], Model]:
    """Print and return the plan's inputs: this machine, its packages, the model with its data."""
    machine = checkup.find_machine(gpu_gib, len(content["seeds"]))
    software = checkup.read_versions()
    here = {"computes on": machine.name, "its memory, GiB": f"{machine.bytes / GIB:.1f}"}
    console.print(make_pairs_table("This machine", here | software))
    model = checkup.load_model_facts(content)
    for report in model.reports:
        console.print(problem_files.describe_report(report), markup=False)
    for warning in model.warnings:
        console.print(f"warning: {warning}", markup=False)
    console.print(make_pairs_table("Text, as the model will read it", checkup.show_text(model)))
    return machine, software, model


def join_problems(problems: Iterable[tuple[str, str]]) -> list[str]:
    """Distinct problems, each after the names of all stages that have it."""
    names = dict[str, list[str]]()
    for name, problem in problems:
        names.setdefault(problem, []).append(name)
    return [f"{', '.join(stages)}: {problem}" for problem, stages in names.items()]


def report_stages(
    stages: Sequence[Stage], model: Model, machine: Machine, plan: Plan, console: Console
) -> list[Forecast]:
    """Print the speed, and each stage's memory and time; returns the stages' forecasts."""
    rates: Mapping[Arithmetic, Rates] = {}
    try:
        rates = checkup.measure_speed(model, machine, plan)
    except ValueError as error:
        console.print(f"Speed: {error}", markup=False)
    chosen = checkup.find_arithmetic(plan)
    forecasts = list(checkup.forecast_stages(stages, model, machine, plan, rates.get(chosen)))
    work = [item.work for item in forecasts if item.work.operations]
    if len(rates) > 1 and work:
        console.print(make_speed_table(rates, work, chosen))
    console.print(make_forecast_table(forecasts))
    for item in forecasts:
        if item.unmeasured:
            console.print(f"{item.stage.name}: not measured, {item.unmeasured}", markup=False)
    return forecasts


def make_pairs_table(title: str, values: Mapping[str, str]) -> Table:
    """Table of names and values."""
    shown = Table(title=title, title_justify="left", show_header=False)
    for name, value in values.items():
        # A token such as [/INST] is text, not rich's mark-up.
        shown.add_row(name, value.replace("[", r"\["))
    return shown


def make_forecast_table(forecasts: Sequence[Forecast]) -> Table:
    """Table of forecasts: one row per stage, and their total."""
    total = sum(item.seconds for item in forecasts)
    shown = Table("stage", "memory, GiB", "most in", "fits", "tokens", "minutes", "rate of",
                  title="Stages", title_justify="left")  # fmt: skip
    for item in forecasts:
        memory = f"{item.peak / GIB:.2f}" if item.peak else "-"
        memory = "not measured" if item.unmeasured else memory
        minutes = f"{item.seconds / 60:.1f}" if item.seconds else "-"
        fits = "no" if item.problem else "?" if item.unmeasured else "yes"
        shown.add_row(
            item.stage.name,
            memory,
            item.phase,
            fits,
            f"{item.work.tokens:,.0f}",
            minutes,
            item.source,
        )
    shown.add_row("all", "", "", "", "", f"{total / 60:.1f}", "")
    return shown


def make_speed_table(
    rates: Mapping[Arithmetic, Rates], work: Sequence[Work], chosen: Arithmetic
) -> Table:
    """Table of the plan's speed in each arithmetic, relative to pinned float32."""
    seconds = {
        arithmetic: sum(each.predict_seconds(item) for item in work)
        for arithmetic, each in rates.items()
    }
    shown = Table("dtype", "rounding", "times as fast", "costs", "", title="compute",
                  title_justify="left", caption_justify="left",
                  caption="Measured for some seconds; between runs they vary by up to a third.",
                  )  # fmt: skip
    for arithmetic, time in seconds.items():
        times = f"{seconds[speed.SIMPLEST] / time:.1f}"
        remark = "the plan's" if arithmetic == chosen else ""
        shown.add_row(*arithmetic, times, arithmetic.describe_cost(), remark)
    return shown


if __name__ == "__main__":
    with process.ending():
        adopt_rounding()
        main(*sys.argv[1:])
