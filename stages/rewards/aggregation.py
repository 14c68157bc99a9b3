"""How the scores of a completion's steps become one score, as chosen and frozen."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from stages.algorithms.selection.step_scores import KINDS, Kind

NAME = "aggregation.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Aggregation:
    """The content of `data/rewards/<process reward>/<seed>/aggregation.json`."""

    best_of: Kind
    """Where the best completion is chosen."""
    weighted: Kind
    """Where completions vote with their scores."""

    def write(self, folder: Path) -> None:
        """Write aggregation.json."""
        (folder / NAME).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")


def read(path: Path) -> Aggregation:
    """The choice in a file.

    Raises:
        ValueError: the file holds something else.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    if not (
        isinstance(content, dict)
        and content.keys() == {"best_of", "weighted"}
        and all(kind in KINDS for kind in content.values())
    ):
        raise ValueError(
            f"{path}: expected `best_of` and `weighted`, each one of {', '.join(KINDS)}, found "
            f"{content!r}. Rerun the reward's stage, which writes this file."
        )
    return Aggregation(**content)
