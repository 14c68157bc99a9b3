"""Overoptimization and training curves in words and tables (Markdown)."""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.algorithms.selection import best_of_n
from stages.studies import markdown
from stages.studies.markdown import number, percent, points
from stages.studies.optimised_curves import BEST_OF_N
from stages.studies.proxy_curves import GOLD, PROXY

NONE = "none"
SCORERS = {"reward_model": "one reward model", "ensemble": "the ensemble"}
Measured = Mapping[str, Any]


def render(metrics: Measured, *, images: Sequence[str]) -> str:
    """The report.

    Args:
        metrics: the content of `data/studies/overoptimization/metrics.json`.
        images: paths of the plots, relative to the report.
    """
    parts = ["# Overoptimization", over_seeds(metrics["over_seeds"])]
    for seed, one in metrics["seeds"].items():
        parts += [f"## Seed {seed}", section(one, metrics["confidence"])]
    parts += ["## Plots", *(f"![{path}]({path})" for path in images)]
    return "\n\n".join(parts) + "\n"


def over_seeds(rows: Sequence[Measured]) -> str:
    """What holds in every seed: a row a curve, each seed's own number in it."""
    header = ["what is optimised", "over-optimised", "best at", "points after the best point"]
    header += ["points at the end", "proxy at the end"]
    return markdown.table(
        header,
        (
            [
                named(row),
                f"{sum(row['overoptimised'])} of {len(row['overoptimised'])} seeds",
                ", ".join(map(str, row["best_place"])),
                *(
                    ", ".join(f"{100 * value:+.1f}" for value in row[name])
                    for name in ("accuracy_after_best", "accuracy_change")
                ),
                ", ".join(f"{value:+.2f}" for value in row["proxy_change"]),
            ]
            for row in rows
        ),
    )


def run(name: str, seeds: Mapping[int, Measured], images: Sequence[str]) -> str:
    """The report on one run, every seed step by step."""
    pages = [run_page(f"seed {seed}", one) for seed, one in seeds.items()]
    parts = [
        f"# {name}, step by step",
        *pages,
        "Samples of the dev problems, the same random streams at every step. KL: from the policy "
        "that the run started from, nats a completion, by k1 and k3. Entropy: nats a token. "
        "Repeated: runs of four tokens that the completion has said before. Disagreement: standard "
        "deviation between the ensemble's members.",
        *(f"![{path}]({path})" for path in images),
    ]
    return "\n\n".join(parts) + "\n"


def section(metrics: Measured, confidence: float) -> str:
    """Of one seed the verdicts, the table of points and the table of fits."""
    curves, left_out, effects = (metrics[name] for name in ("curves", "left_out", "effects"))
    missing = [f"Not shown, {name}: {why}." for name, why in left_out.items()]
    if not curves:
        return "\n\n".join(missing) or NONE
    return "\n\n".join(
        [
            *missing,
            f"The true reward is the answer checker's verdict. In brackets {confidence:.0%} "
            f"intervals over problems.",
            "\n".join(
                [*(f"- {verdict(one)}" for one in curves), *(f"- {effect(one)}" for one in effects)]
            ),
            point_table(curves),
            "Distance: the square root of the KL divergence from the start policy in nats; of "
            "best-of-n by its pool of samples, and the bound log n - (n - 1)/n, which ties and "
            "repeated completions keep it below. Proxy: what the scorer says, relative to the "
            "start, in standard deviations of its scores among the start policy's completions of "
            "a problem. All of it is on dev problems, those of best-of-n fewer. A scorer "
            "beside a run need not be what it was trained on.",
            fit_table(curves),
            "Forms: R = d (alpha - beta d) for best-of-n, R = d (alpha - beta log d) for runs "
            "(Gao et al. 2023). A peak that lies beyond the measured distances is a guess and "
            "not printed. Misses by: root mean square between the fit and its points, in standard "
            "deviations; a peak of a fit that misses them by more than their intervals means "
            "little. Peaks within: the share of resamples of the problems whose fit turns "
            "down within what was measured.",
        ]
    )


def verdict(curve: Measured) -> str:
    """Does the true reward fall while the proxy rises? In a sentence."""
    what = f"**{named(curve)}**"
    place = "n" if curve["method"] == BEST_OF_N else "step"
    last, best = curve["points"][-1]["place"], curve["best_place"]
    rise = f"the proxy changes by {number(curve['proxy_change'])} standard deviations"
    whole = (
        f"{rise}, the accuracy by {points(curve['accuracy_change'])} points up to {place} {last}"
    )
    if curve["overoptimised"]:
        return (
            f"{what}: over-optimised. The accuracy is best at {place} {best}; from the best point "
            f"on (chosen on other problems) it falls by {points(curve['accuracy_after_best'])} "
            f"points while the proxy still changes by {number(curve['proxy_after_best'])}. In all "
            f"{whole}."
        )
    if best == last:
        return f"{what}: no fall seen; the accuracy is best at the end. In all {whole}."
    return (
        f"{what}: no fall resolved. The accuracy is best at {place} {best}; from the best point on "
        f"(chosen on other problems) it changes by {points(curve['accuracy_after_best'])} points. "
        f"In all {whole}."
    )


def effect(one: Measured) -> str:
    """Does the ensemble move the peak, or hold the end up? In a sentence."""
    what = f"**the ensemble in place of one reward model, best-of-n from {one['name']}**"
    end = f"at n {one['n']} it is right {points(one['accuracy_at_end'])} points more often"
    if one["peak_shift"] is None:
        return f"{what}: {end}; not every resample of both has a peak to compare."
    low, high = one["peak_shift"]["low"], one["peak_shift"]["high"]
    moved = "not resolved from none" if low <= 0 <= high else "resolved"
    return f"{what}: the peak moves by {number(one['peak_shift'])} in distance, {moved}; {end}."


def point_table(curves: Sequence[Measured]) -> str:
    """A row a point."""
    rows = []
    for curve in curves:
        is_best_of_n = curve["method"] == BEST_OF_N
        for point in told(curve):
            place = point["place"]
            bound = f"{best_of_n.kl_bound(place) ** 0.5:.2f}" if is_best_of_n else ""
            rows.append(
                [
                    named(curve),
                    f"{'n' if is_best_of_n else 'step'} {place}",
                    f"{point['distance']:.2f}",
                    bound,
                    number(point[PROXY]),
                    percent(point["accuracy"]),
                ]
            )
    header = ["what is optimised", "point", "distance", "bound", "proxy", "accuracy"]
    return markdown.table(header, rows)


def told(curve: Measured) -> list[Measured]:
    """The points that are shown one by one: of best-of-n the powers of two and the last."""
    found = curve["points"]
    if curve["method"] != BEST_OF_N:
        return list(found)
    return [one for one in found if not one["place"] & (one["place"] - 1) or one is found[-1]]


def fit_table(curves: Sequence[Measured]) -> str:
    """A row a curve and reward."""
    rows = []
    for curve in curves:
        for name, told in ((PROXY, "proxy"), (GOLD, "true reward")):
            fit = curve["fits"][name]
            rows.append([f"{named(curve)}: {told}", *_fitted(fit)])
    header = ["fitted", "alpha", "beta", "misses by", "peak at distance", "peaks within"]
    return markdown.table(header, rows)


def _fitted(fit: Measured | None) -> list[str]:
    if fit is None:
        return ["too few points", "", "", "", ""]
    ends = [
        "none" if fit[key] is None else f"{fit[key]:.2f}"
        for key in ("peak_distance_low", "peak_distance_high")
    ]
    peak = f"{fit['peak_distance']:.2f} [{', '.join(ends)}]" if fit["peak_is_measured"] else "none"
    share = f"{100 * fit['peaks_measured']:.0f} %"
    return [f"{fit['alpha']:.3f}", f"{fit['beta']:.3f}", f"{fit['residual']:.3f}", peak, share]


def named(curve: Measured) -> str:
    """`best-of-n from sft, by the ensemble`, `ppo, scored by one reward model`."""
    scorer = SCORERS[curve["scorer"]]
    if curve["method"] == BEST_OF_N:
        return f"best-of-n from {curve['name']}, by {scorer}"
    return f"{curve['name']}, scored by {scorer}"


def run_page(name: str, run: Measured) -> str:
    """A run's steps as a table."""
    rows = [
        [
            step,
            percent(one["correct"]),
            number(one["reward_model"]),
            number(one["ensemble"]),
            number(one["ensemble_std"]),
            f"{one['kl_k1']['value']:.3f}, {one['kl_k3']['value']:.3f}",
            f"{one['tokens']['value']:.1f}",
            f"{one['entropy']['value']:.3f}",
            f"{100 * one['truncated']['value']:.1f} %",
            f"{100 * one['repetition']['value']:.1f} %",
        ]
        for step, one in run["steps"].items()
    ]
    header = ["step", "accuracy", "one reward model", "ensemble", "disagreement", "KL"]
    header += ["tokens", "entropy", "cut", "repeated"]
    told = f"### {name}\n\nBest on dev: step {run['best_step']}."
    return f"{told}\n\n{markdown.table(header, rows)}"
