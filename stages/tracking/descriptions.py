"""Descriptions of runs, in Markdown, with links to related runs and pages.

Links are relative to MLflow's pages, so they work at any address of its server.
"""

import html
import re
from collections.abc import Collection, Mapping

from stages.rows import DATA
from stages.runtime import identity
from stages.tracking.lockfile import Entry

CURVES = "model-metrics"


def name_run(stage: str) -> str:
    """Name in MLflow of a stage's run."""
    return identity.name_of(stage).replace("@", " ")


def link(text: str, experiment_id: str, run_id: str, page: str = "") -> str:
    """A link to a run, or to one of its pages."""
    path = f"#/experiments/{experiment_id}/runs/{run_id}{page and f'/{page}'}"
    return f"[{text}]({path}?workflowType=machine_learning)"


def escape(text: str) -> str:
    """`text` escaped for Markdown, so that images and links in it are shown as text."""
    return re.sub(r"([\\`*_{}\[\]()#!|])", r"\\\1", html.escape(text, quote=False))


def describe_stage(
    entry: Entry, entries: Collection[Entry], runs: Mapping[str, str], experiment_id: str
) -> str:
    """Description of a stage: its purpose, the runs of its inputs, its curves and completions.

    `runs`: MLflow's id of the run of each stage that has one.
    """
    sources = {out.path: source.stage for source in entries for out in source.outs}
    inputs = []
    for dep in entry.deps:
        stage = next(
            (sources[path] for path in (dep.path, *dep.path.parents) if path in sources), ""
        )
        if stage in runs:
            name = dep.path.relative_to(DATA).as_posix()
            inputs.append(link(name, experiment_id, runs[stage]))
    stage_run = runs[entry.stage]
    pages = [
        link("curves", experiment_id, stage_run, CURVES),
        link("files", experiment_id, stage_run, "artifacts"),
    ]
    lines = [entry.description, f"Inputs: {', '.join(inputs)}" if inputs else "", " · ".join(pages)]
    return "\n\n".join(line for line in lines if line)


def describe_manifest(
    verdict: str, numbers: Mapping[str, float], runs: Mapping[str, str], experiment_id: str
) -> str:
    """The verdict, a table of policies with links to their runs, and the report.

    `numbers`: `accuracy/<policy>` and `gain/<policy>`.
    """
    lines = [escape(verdict.strip())]
    if "compare" in runs:
        report = link("Report", experiment_id, runs["compare"], "artifacts/report.html")
        lines += ["", report]
    policies = [name.partition("/")[2] for name in numbers if name.startswith("accuracy/")]
    if policies:
        lines += [
            "",
            "| policy | accuracy, % | points over the baseline | runs |",
            "|---|---|---|---|",
        ]
    for policy in policies:
        pages = [
            link(text, experiment_id, runs[stage], page)
            for text, stage, page in (
                ("training", f"train@{policy}", ""),
                ("curves", f"train@{policy}", CURVES),
                ("completions", f"sample@{policy}", "artifacts/completions/test_greedy.json"),
                ("evaluation", f"evaluate@{policy}", ""),
            )
            if stage in runs
        ]
        gain = numbers.get(f"gain/{policy}")
        shown = "" if gain is None else f"{100 * gain:+.1f}"
        accuracy = 100 * numbers[f"accuracy/{policy}"]
        lines.append(f"| {policy} | {accuracy:.1f} | {shown} | {', '.join(pages)} |")
    return "\n".join(lines)
