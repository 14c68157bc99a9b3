"""The few numbers of a stage by which it is known: its closing line, and its run in MLflow.

An edit shows there after `posttrain track`: no output depends on it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ruamel.yaml import YAML

METRICS: Mapping[str, Mapping[str, Sequence[str]]] = YAML(typ="safe").load(
    Path(__file__).with_suffix(".yaml")
)
"""Stage -> name in MLflow -> where it stands in the metrics.json of a seed, or in the last step of
its history: the first that is there. A run shows the mean over seeds; of a policy's training also
those of its evaluation."""
