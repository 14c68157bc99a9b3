"""How all plots look, and PNG files whose bytes depend on the numbers alone."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart with any kind of colour vision.
GREY, BLUE, RED, GREEN, PINK = "#555555", "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK = "#E69F00", "#56B4E9", "#000000"

_ORDER = (GREY, BLUE, RED, GREEN, PINK, ORANGE, SKY, BLACK)
_STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "savefig.dpi": 140,
    "figure.constrained_layout.use": True,
}


@contextmanager
def applied() -> Iterator[None]:
    """Matplotlib's own defaults (whatever the user's matplotlibrc says) and this style."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def colours(policies: Iterable[str]) -> dict[str, str]:
    """The colour of each policy in every plot, by its place; the baseline, the first, is grey."""
    return {name: _ORDER[place % len(_ORDER)] for place, name in enumerate(policies)}


def save(figure: Figure, path: Path) -> None:
    """Write a PNG without the library's version, which matplotlib would put in."""
    figure.savefig(path, format="png", metadata={"Software": None})
