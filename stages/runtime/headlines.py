"""Headline numbers of each stage: in its closing line, and in its run in MLflow.

An edit shows there after `posttrain track`: no output depends on it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ruamel.yaml import YAML

METRICS: Mapping[str, Mapping[str, Sequence[str]]] = YAML(typ="safe").load(
    Path(__file__).with_suffix(".yaml")
)
"""Stage -> name in MLflow -> keys in the metrics.json of a seed, or in the last step of its
history, of which the first that exists counts. A run shows the mean over seeds, if all have
it; that of a policy's training also the numbers of its evaluation."""
