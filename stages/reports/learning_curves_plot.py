"""Plot: true accuracy and reward of the rollouts of reinforcement-learning runs, by step."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from stages.reports import plot_style
from stages.reports.learning_curve import CurvePoint

SMOOTHED_STEPS = 9
"""Width of the centred moving average."""


def draw(
    path: Path, curves: Mapping[str, Sequence[CurvePoint]], colours: Mapping[str, str]
) -> None:
    """True accuracy of the rollouts of all runs, and the reward of each on its own scale.

    Without any run the file is there all the same: dvc.yaml names it.
    """
    with plot_style.applied():
        figure = Figure(figsize=(3.7 * (len(curves) + 1), 3.4))
        first, *others = figure.subplots(1, len(curves) + 1, squeeze=False).flat
        for name, points in curves.items():
            _curve(first, points, "accuracy", colours[name], label=name)
        first.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        first.set_title("True accuracy of rollouts")
        if curves:
            first.legend(loc="lower right")
        else:
            first.text(0.5, 0.5, "no reinforcement learning in this plan", ha="center")
        for axes, (name, points) in zip(others, curves.items(), strict=True):
            _curve(axes, points, "reward", colours[name], label=name)
            axes.set_title(f"Reward that {name} maximises")
        for axes in (first, *others):
            axes.set_xlabel("rollout step")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        plot_style.save(figure, path)


def _curve(
    axes: Axes, points: Sequence[CurvePoint], field: str, colour: str, *, label: str
) -> None:
    steps = [point.step for point in points]
    values = [float(getattr(point, field)) for point in points]
    axes.plot(steps, values, color=colour, alpha=0.3, linewidth=1)
    axes.plot(steps, smooth(values), color=colour, linewidth=2, label=label)


def smooth(values: Sequence[float]) -> list[float]:
    """Moving average over `SMOOTHED_STEPS`, centred; at the ends over what there is of it."""
    reach = SMOOTHED_STEPS // 2
    windows = [values[max(0, place - reach) : place + reach + 1] for place in range(len(values))]
    return [sum(window) / len(window) for window in windows]
