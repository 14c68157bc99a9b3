"""Before anything runs or is downloaded: will the plan work here, and what will it take?

    python -m stages.doctor [--gpu-gib 80]

Prints, for each stage, its memory (`planning/memory`: its own loop on fake tensors), whether it
fits, the tokens and minutes that are expected, and how far the last expectations were off; the
GPU and software that are there; one demonstration as the model will read it; and everything that
cannot work or be prepared, with what to change: then it ends with code 1. Writes nothing that a
stage reads.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from stages import auto, tables
from stages.config import PARAMS_PATH, PRESETS_PATH, read_yaml
from stages.plan_checks import DVC_YAML
from stages.planning import checkup, forecast, pace
from stages.planning import stage as stage_of
from stages.planning.checkup import GIB
from stages.planning.forecast import Forecast
from stages.planning.stage import Plan
from stages.runtime import process, start_up


def main(*words: str) -> None:
    """Print what is found; exit with 1 where something cannot work."""
    parser = argparse.ArgumentParser(prog="python -m stages.doctor")
    parser.add_argument("--gpu-gib", type=float, help="plan for a GPU of this size")
    pretended, console = parser.parse_args(words).gpu_gib, Console()
    wrong = subprocess.run([sys.executable, "-m", "stages.plan", "--check"], check=False)
    if wrong.returncode:
        sys.exit("Nothing can be told of a plan that is not valid.")
    checkup.offline()
    start_up.give_back()
    recipes = [Path(one) for one in read_yaml(DVC_YAML).get("vars") or []]
    rows, _ = tables.read_tables([PARAMS_PATH, *recipes])
    content, presets = read_yaml(), read_yaml(PRESETS_PATH)
    machine, software = checkup.machine(pretended, len(content["seeds"])), checkup.software()
    here = {"computes on": machine.name, "its memory, GiB": f"{machine.bytes / GIB:.1f}"}
    console.print(pairs("This machine", here | software))
    try:
        model = checkup.model(content)
    except (OSError, ValueError) as error:
        sys.exit(f"prepare_data would end so (here nothing is downloaded): {error}")
    content, _ = auto.resolve({**content, "presets": presets}, model.facts)
    presets = content.pop("presets")
    console.print(pairs("Text, as the model will read it", checkup.text_example(model)))
    plan = Plan(content=content, presets=presets, rows=rows, data=model.data)
    stages = list(stage_of.stages(plan))
    found = list(forecast.all_of(stages, model, machine, plan))
    console.print(table(found))
    if (error := pace.error()) is not None:
        console.print(f"The last estimates were off by {error[0]:.0%}, over {error[1]} stages.")
    if machine.is_here:
        pace.remember({one.stage.name: one.seconds for one in found if one.seconds})
    for one in found:
        if one.unmeasured:
            console.print(f"{one.stage.name}: not measured, {one.unmeasured}", markup=False)
    problems = list(checkup.problems(model, stages, plan, software))
    problems += [f"{one.stage.name}: {one.problem}" for one in found if one.problem]
    if problems:
        sys.exit("What cannot work:\n" + "\n".join(f"  {problem}" for problem in problems))
    console.print("Nothing was found that cannot work.")


def pairs(title: str, told: Mapping[str, str]) -> Table:
    """Names and values."""
    shown = Table(title=title, title_justify="left", show_header=False)
    for name, value in told.items():
        # A token such as [/INST] is text, and no mark-up.
        shown.add_row(name, value.replace("[", r"\["))
    return shown


def table(found: Sequence[Forecast]) -> Table:
    """A row for each stage, and one for all."""
    total = sum(one.seconds for one in found)
    shown = Table("stage", "memory, GiB", "most in", "fits", "tokens", "minutes", "rate of",
                  title="Stages", title_justify="left")  # fmt: skip
    for one in found:
        phase, size = one.largest
        memory = f"{size / GIB:.2f}" if size else "not measured" if one.unmeasured else "-"
        minutes = f"{one.seconds / 60:.1f}" if one.seconds else "-"
        rate = ("an earlier run" if one.known else "a guess") if one.seconds else "-"
        fits = "no" if one.problem else "?" if one.unmeasured else "yes"
        shown.add_row(one.stage.name, memory, phase, fits, f"{one.work.tokens:,.0f}", minutes, rate)
    shown.add_row("all", "", "", "", "", f"{total / 60:.1f}", "")
    return shown


if __name__ == "__main__":
    process.run(main)
