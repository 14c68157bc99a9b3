"""Views of the experiment that MLflow's pages offer under "Views", and the address of one.

A saved view is a tag of the experiment, in the form in which MLflow's pages write it: filter,
columns, order and charts of the table of runs.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stages.tracking.store import Store

TAG, NOTE = "mlflow.sharedViewState.", "mlflow.note.content"
POLICIES, MANIFESTS, CURVES = "policies", "manifests", "curves"
NAMES = {POLICIES: "Policies", MANIFESTS: "Manifests", CURVES: "Learning curves"}
MEASURES = (
    "accuracy", "greedy_accuracy", "dev_accuracy", "reward", "kl", "margin_accuracy", "run/seconds",
)  # fmt: skip
ROW_TAGS = ("method", "preset", "from", "on", "control", "pipeline_run")
"""Tags of a policy's training that its table shows."""
CHARTS = (
    "reward/mean", "reward/accuracy", "kl/sequence", "entropy", "length/mean", "margin/accuracy",
    "loss/preference", "loss/nll",
)  # fmt: skip
DESCRIPTION = """Start with a view: {links}.

A *manifest* is the whole of dvc.lock at one time; below it are the stage runs that were new in it.
"""


def set_up_experiment(store: Store, policies: Sequence[str], seeds: Sequence[str]) -> None:
    """Write description and views of the experiment where they differ.

    A user's own description stays; a view of a user's has another key than ours.
    """
    experiment = store.client.get_experiment(store.experiment_id)
    created = experiment.creation_time
    paths = {view: find_path(store.experiment_id, view) for view in NAMES}
    links = ", ".join(f"[{NAMES[view]}]({path})" for view, path in paths.items())
    tags = {} if NOTE in experiment.tags else {NOTE: DESCRIPTION.format(links=links)}
    for view, state in _make_views(policies, seeds).items():
        content = {"name": NAMES[view], "createdAt": created, "state": json.dumps(state)}
        tags[TAG + view] = json.dumps(content)
    for name, value in tags.items():
        if experiment.tags.get(name) != value:
            store.client.set_experiment_tag(store.experiment_id, name, value)


def find_path(experiment_id: str, view: str) -> str:
    """The address of a view within MLflow's pages, which else are those for traces."""
    mode = "&compareRunsMode=CHART" if view == CURVES else ""
    words = f"workflowType=machine_learning&viewStateShareKey={view}{mode}"
    return f"#/experiments/{experiment_id}/runs?{words}"


def _make_views(policies: Sequence[str], seeds: Sequence[str]) -> Mapping[str, dict[str, Any]]:
    accuracy = [f"accuracy/{policy}" for policy in policies]
    # In the order of time a run would be hidden below its manifest.
    training = {
        "searchFilter": "tags.stage = 'train'",
        "orderByKey": "metrics.`accuracy`",
        "orderByAsc": False,
    }
    columns = [*_columns("metrics", MEASURES), *_columns("tags", ROW_TAGS)]
    return {
        POLICIES: training | {"selectedColumns": columns, "columnOrder": columns},
        MANIFESTS: {
            "searchFilter": "tags.stage = 'manifest'",
            "selectedColumns": [
                *_columns("metrics", ["accuracy", *accuracy, "run/seconds"]),
                *_columns("attributes", ["Version"]),
            ],
        },
        CURVES: training
        | {
            "selectedColumns": columns,
            "compareRunSections": [
                {"uuid": CURVES, "name": NAMES[CURVES], "display": True, "isReordered": True}
            ],
            "compareRunCharts": [_make_chart(metric, seeds) for metric in CHARTS],
            "isAccordionReordered": True,
        },
    }


def _columns(kind: str, names: Sequence[str]) -> list[str]:
    return [f"{kind}.`{name}`" for name in names]


def _make_chart(metric: str, seeds: Sequence[str]) -> dict[str, Any]:
    """A chart of the mean over seeds, and of each seed, by step."""
    return {
        "type": "LINE",
        "uuid": metric,
        "metricSectionId": CURVES,
        "displayName": metric,
        "metricKey": metric,
        "displayPoints": False,
        "selectedMetricKeys": [metric, *(f"seed-{seed}/{metric}" for seed in seeds)],
        "runsCountToCompare": 10,
        "deleted": False,
        "isGenerated": False,
        "lineSmoothness": 0,
        "xAxisKey": "step",
        "xAxisScaleType": "linear",
        "scaleType": "linear",
        "range": {},
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "selectedXAxisMetricKey": "",
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
        "ignoreOutliers": False,
    }
