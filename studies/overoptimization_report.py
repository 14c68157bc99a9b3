"""Overoptimization in words, tables (Markdown) and plots of both rewards against the distance."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from stages.algorithms.selection import best_of_n
from stages.report import markdown, plots
from stages.report.markdown import format_number, format_percent, format_points
from studies.proxy_curves import BEST_OF_N, GOLD, PROXY

SCORERS = {"reward_model": "one reward model", "ensemble": "the ensemble"}
REWARDS = {PROXY: "proxy", GOLD: "true reward"}
COLOURS = {PROXY: plots.RED, GOLD: plots.BLUE}
LINES = {PROXY: "--", GOLD: "-"}
Measured = Mapping[str, Any]


def render_report(metrics: Measured, *, images: Sequence[str]) -> str:
    """The report on `data/studies/overoptimization/metrics.json`; `images`: paths of the plots."""
    parts = ["# Overoptimization", render_over_seeds(metrics["over_seeds"])]
    for seed, seed_metrics in metrics["seeds"].items():
        parts += [f"## Seed {seed}", render_seed(seed_metrics, metrics["confidence"])]
    parts += ["## Plots", *(f"![{path}]({path})" for path in images)]
    return "\n\n".join(parts) + "\n"


def render_over_seeds(rows: Sequence[Measured]) -> str:
    """Table over seeds: a row a curve, with each seed's number."""
    header = ["what is optimised", "over-optimised", "best at", "points after the best point"]
    header += ["points at the end", "proxy at the end"]
    cells = [
        [
            name_curve(row),
            f"{sum(row['overoptimised'])} of {len(row['overoptimised'])} seeds",
            ", ".join(map(str, row["best_place"])),
            *(
                ", ".join(f"{100 * value:+.1f}" for value in row[name])
                for name in ("accuracy_after_best", "accuracy_change")
            ),
            ", ".join(f"{value:+.2f}" for value in row["proxy_change"]),
        ]
        for row in rows
    ]
    return markdown.render_table(header, cells)


def render_seed(metrics: Measured, confidence: float) -> str:
    """Verdicts, table of points and table of fits of one seed."""
    curves, left_out, effects = (metrics[name] for name in ("curves", "left_out", "effects"))
    missing = [f"Not shown, {name}: {why}." for name, why in left_out.items()]
    if not curves:
        return "\n\n".join(missing) or "none"
    header = ["what is optimised", "point", "distance", "bound", "proxy", "accuracy"]
    fitted = ["fitted", "alpha", "beta", "misses by", "peak at distance", "peaks within"]
    parts = [
        *missing,
        f"The true reward is the answer checker's verdict. In brackets {confidence:.0%} "
        f"intervals over problems.",
        "\n".join(
            f"- {sentence}"
            for sentence in [*map(describe_curve, curves), *map(describe_effect, effects)]
        ),
        markdown.render_table(
            header, (_point(curve, point) for curve in curves for point in select_points(curve))
        ),
        "Distance: the square root of the KL divergence from the start policy in nats; of "
        "best-of-n by its pool of samples, and the bound log n - (n - 1)/n, which ties and "
        "repeated completions keep it below. Proxy: what the scorer says, relative to the "
        "start, in standard deviations of its scores among the start policy's completions of "
        "a problem. All of it is on dev problems, those of best-of-n fewer. A scorer "
        "beside a run need not be what it was trained on.",
        markdown.render_table(fitted, (_fit(curve, name) for curve in curves for name in REWARDS)),
        "Forms: R = d (alpha - beta d) for best-of-n, R = d (alpha - beta log d) for runs "
        "(Gao et al. 2023). A peak that lies beyond the measured distances is a guess and "
        "not printed. Misses by: root mean square between the fit and its points, in standard "
        "deviations; a peak of a fit that misses them by more than their intervals means "
        "little. Peaks within: the share of resamples of the problems whose fit turns "
        "down within what was measured.",
    ]
    return "\n\n".join(parts)


def describe_curve(curve: Measured) -> str:
    """Sentences on a curve: whether, and how far, the true reward falls while the proxy rises."""
    what = f"**{name_curve(curve)}**"
    place = "n" if curve["method"] == BEST_OF_N else "step"
    last, best = curve["points"][-1]["place"], curve["best_place"]
    after = f"at {place} {best}; from the best point on (chosen on other problems) it"
    fall = format_points(curve["accuracy_after_best"])
    whole = (
        f"the proxy changes by {format_number(curve['proxy_change'])} standard deviations, the "
        f"accuracy "
        f"by {format_points(curve['accuracy_change'])} points up to {place} {last}"
    )
    if curve["overoptimised"]:
        return (
            f"{what}: over-optimised. The accuracy is best {after} falls by {fall} points "
            f"while the proxy still changes by {format_number(curve['proxy_after_best'])}. "
            f"In all {whole}."
        )
    if best == last:
        return f"{what}: no fall seen; the accuracy is best at the end. In all {whole}."
    return (
        f"{what}: no fall resolved. The accuracy is best {after} changes by {fall} points. "
        f"In all {whole}."
    )


def describe_effect(comparison: Measured) -> str:
    """Sentence on the ensemble minus one model: distance of the peak, accuracy at the last n."""
    what = f"**the ensemble in place of one reward model, best-of-n from {comparison['name']}**"
    gain = format_points(comparison["accuracy_at_end"])
    end = f"at n {comparison['n']} it is right {gain} points more often"
    if comparison["peak_shift"] is None:
        return f"{what}: {end}; not every resample of both has a peak to compare."
    low, high = comparison["peak_shift"]["low"], comparison["peak_shift"]["high"]
    moved = "not resolved from none" if low <= 0 <= high else "resolved"
    shift = format_number(comparison["peak_shift"])
    return f"{what}: the peak moves by {shift} in distance, {moved}; {end}."


def select_points(curve: Measured) -> list[Measured]:
    """The points that are shown one by one: of best-of-n the powers of two and the last."""
    points = curve["points"]
    if curve["method"] != BEST_OF_N:
        return list(points)
    return [
        point
        for point in points
        if not point["place"] & (point["place"] - 1) or point is points[-1]
    ]


def _point(curve: Measured, point: Measured) -> list[str]:
    n = point["place"] if curve["method"] == BEST_OF_N else None
    return [
        name_curve(curve),
        f"step {point['place']}" if n is None else f"n {n}",
        f"{point['distance']:.2f}",
        "" if n is None else f"{best_of_n.kl_bound(n) ** 0.5:.2f}",
        format_number(point[PROXY]),
        format_percent(point["accuracy"]),
    ]


def _fit(curve: Measured, name: str) -> list[str]:
    what, fit = f"{name_curve(curve)}: {REWARDS[name]}", curve["fits"][name]
    if fit is None:
        return [what, "too few points", "", "", "", ""]
    numbers = [f"{fit[key]:.3f}" for key in ("alpha", "beta", "residual")]
    bounds = (fit["peak_distance_low"], fit["peak_distance_high"])
    ends = ", ".join("none" if bound is None else f"{bound:.2f}" for bound in bounds)
    peak = f"{fit['peak_distance']:.2f} [{ends}]" if fit["peak_is_measured"] else "none"
    return [what, *numbers, peak, f"{100 * fit['peaks_measured']:.0f} %"]


def name_curve(curve: Measured) -> str:
    """`best-of-n from sft, by the ensemble`, `ppo, scored by one reward model`."""
    by = "by" if curve["method"] == BEST_OF_N else "scored by"
    return f"{_row(curve)}, {by} {SCORERS[curve['scorer']]}"


def _row(curve: Measured) -> str:
    is_best_of_n = curve["method"] == BEST_OF_N
    return f"best-of-n from {curve['name']}" if is_best_of_n else curve["name"]


def draw_curves(path: Path, curves: Sequence[Measured]) -> None:
    """A row of panels for each method, a column for each scorer."""
    methods = list(dict.fromkeys(_row(curve) for curve in curves)) or [""]
    scorers = list(dict.fromkeys(curve["scorer"] for curve in curves)) or [PROXY]
    with plots.save_figure(path, width=4.6 * len(scorers), height=3.1 * len(methods)) as figure:
        grid = figure.subplots(len(methods), len(scorers), squeeze=False, sharey="row")
        for axes in grid.flat:
            axes.set_visible(not curves)
        for curve in curves:
            axes = grid[methods.index(_row(curve))][scorers.index(curve["scorer"])]
            axes.set_visible(True)
            _panel(axes, curve)
        if not curves:
            grid[0][0].text(0.5, 0.5, "nothing to choose by", ha="center")


def _panel(axes: Axes, curve: Measured) -> None:
    for reward in REWARDS:
        _reward(axes, curve, reward)
    if curve["method"] == BEST_OF_N:
        bounds = [best_of_n.kl_bound(point["place"]) ** 0.5 for point in curve["points"]]
        values = [point[GOLD]["value"] for point in curve["points"]]
        label = "true reward, at the bound"
        axes.plot(bounds, values, color=plots.GREY, linestyle=":", linewidth=1, label=label)
    unit = 100 * curve["units"][GOLD]
    accuracy = axes.secondary_yaxis(
        "right", functions=(lambda value: value * unit, lambda value: value / unit)
    )
    accuracy.set_ylabel("true reward, points")
    axes.axhline(0, color=plots.GREY, linewidth=0.8)
    axes.set_xlabel("square root of KL from the start, nats")
    axes.set_ylabel("reward, standard deviations")
    axes.set_title(f"{_row(curve)}: {SCORERS[curve['scorer']]}")
    axes.margins(y=0.15)
    if axes.get_legend_handles_labels()[0]:  # none where too few points fix a fit
        axes.legend(fontsize=8)


def _reward(axes: Axes, curve: Measured, reward: str) -> None:
    """Points with intervals; the fit, its band, and its peak where that lies among the points."""
    points, colour, fit = select_points(curve), COLOURS[reward], curve["fits"][reward]
    keys = ("value", "low", "high")
    values, low, high = (np.array([point[reward][key] for point in points]) for key in keys)
    axes.errorbar(
        [point["distance"] for point in points], values,
        yerr=np.maximum([values - low, high - values], 0.0), fmt="o" if reward == GOLD else "s",
        markerfacecolor=colour if reward == GOLD else "white", markersize=4, color=colour,
        capsize=2, linewidth=1,
    )  # fmt: skip
    if fit is not None:
        distance, value, low, high = (fit["band"][key] for key in ("distance", *keys))
        label = f"{REWARDS[reward]}, fit"
        axes.plot(distance, value, color=colour, linestyle=LINES[reward], label=label)
        axes.fill_between(distance, low, high, color=colour, alpha=0.15, lw=0)
        if fit["peak_is_measured"]:
            peak = fit["peak_distance"], fit["peak_reward"]
            axes.plot(*peak, marker="*", markersize=12, color=colour)
