"""How the scores of steps become one score of a completion, as chosen and frozen."""

import json
from dataclasses import dataclass
from pathlib import Path

from stages.algorithms.selection.step_scores import KINDS, Kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Aggregation:
    """The content of `data/choose_aggregation/<entry>/choice.json`."""

    best_of: Kind
    """Where the best completion is chosen."""
    weighted: Kind
    """Where completions vote with their scores."""


def read(path: Path) -> Aggregation | None:
    """The choice in a file; None of `data/no_choice.json`, which says `null`.

    Raises:
        ValueError: the file holds something else.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    if content is None:
        return None
    if not (
        isinstance(content, dict)
        and content.keys() == {"best_of", "weighted"}
        and all(kind in KINDS for kind in content.values())
    ):
        raise ValueError(
            f"{path}: expected `best_of` and `weighted`, each one of {', '.join(KINDS)}, found "
            f"{content!r}. Rerun choose_aggregation, which writes this file."
        )
    return Aggregation(**content)
