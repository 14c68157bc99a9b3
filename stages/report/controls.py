"""Controls, trainings that must not make a policy more skilful, and the verdict on them.

A row of `policies` with the key `control` is compared with the policy of its `from`, paired by seed
and problem, and with nothing else: it is in no table, test or ranking of the other policies.

- `no_effect`: there is nothing to learn, such as a coin as reward. Mean accuracy must not change.
- `no_skill`: what is paid is no skill, such as a length. Its gain is not wrong, and says how much
  of another policy's gain may be no skill either; tested is what the others have beyond it.

That a difference is not significant does not show that there is none. No difference is what an
interval within ±`MARGIN` shows: two one-sided tests (Schuirmann 1987,
https://doi.org/10.1007/BF01068419), by a 95 % interval at a level of 2.5 %. That all controls are
without effect needs no adjustment, as each must be; that one has an effect is adjusted by Holm's
method among those of its kind.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from stages.records.metrics import round_metric
from stages.report.comparison import Difference, estimate_intervals, test_differences
from stages.report.estimates import FIELDS, GREEDY, MEAN, Results
from stages.report.stage_metrics import Plan
from stages.report.verdict import Metrics, describe_gain, format_points, join_words

KINDS = NO_EFFECT, NO_SKILL = "no_effect", "no_skill"
MARGIN = 0.02
"""Differences of mean accuracy up to 2 points count as none (ours)."""
WITHOUT_ANSWERS = (
    "No answer can be checked, so the controls (key `control` of a row) are not compared."
)
Outcome = Literal["none", "different", "undecided", "untested"]


def find_controls(plan: Plan) -> dict[str, Mapping[str, Any]]:
    """The rows of policies that are controls."""
    return {name: row for name, row in plan["policies"].items() if row.get("control")}


def leave_out(results: Results, names: Mapping[str, Any]) -> Results:
    """The results without those of some policies."""
    parts = {
        part: {name: value for name, value in getattr(results, part).items() if name not in names}
        for part in ("tables", "halves", "metrics")
    }
    return replace(results, **parts)


def add_controls(
    metrics: dict[str, Any],
    results: Results,
    rows: Mapping[str, Mapping[str, Any]],
    *,
    has_answers: bool,
) -> None:
    """Add the comparison of the controls, if there are any, to the report's metrics and verdict."""
    if rows and has_answers:
        metrics["controls"] = compare_controls(results, rows)
        metrics["verdict"] += describe_controls(metrics["controls"])
    elif rows:
        metrics["verdict"].append(WITHOUT_ANSWERS)


def compare_controls(results: Results, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Controls against the policies that they start from; the other policies against controls.

    Args:
        results: Of all policies, controls among them; the baseline is the first.
        rows: The rows of the controls.

    Returns:
        `policies`, the estimates of controls; `differences` and `greedy`, by kind and name, those
        without effect with their `outcome`; `beyond`, what each other policy has over each control
        without skill.
    """
    tables = results.tables
    baseline = next(iter(tables))
    named = {kind: [name for name, row in rows.items() if row["control"] == kind] for kind in KINDS}
    differences, greedy = (
        {
            kind: test_differences(
                {name: tables[name][key] - tables[rows[name]["from"]][key] for name in names},
                results,
            )
            for kind, names in named.items()
            if names
        }
        for key in (MEAN, GREEDY)
    )
    for name, difference in differences.get(NO_EFFECT, {}).items():
        differences[NO_EFFECT][name] = difference | {
            "outcome": judge_no_effect(difference), "bound": find_bound(difference),
        }  # fmt: skip
    others = [name for name in tables if name not in rows and name != baseline]
    beyond = {
        f"{name} - {control}": tables[name][MEAN] - tables[control][MEAN]
        for control in named[NO_SKILL]
        for name in others
    }
    return {
        "margin": MARGIN, "from": {name: row["from"] for name, row in rows.items()},
        "policies": {
            name: estimate_intervals({key: tables[name][key] for key in FIELDS}, results)
            for name in rows
        },
        "differences": differences, "greedy": greedy,
        "beyond": test_differences(beyond, results),
    }  # fmt: skip


def find_bound(difference: Difference) -> float:
    """The largest distance from 0 within the interval."""
    return round_metric(max(abs(difference["low"]), abs(difference["high"])))


def judge_no_effect(difference: Difference) -> Outcome:
    """Whether there is a difference, there is none, or the interval is too wide to say.

    A significant difference is one however small it is.
    """
    if difference["significant"] is None:
        return "untested"
    if difference["significant"]:
        return "different"
    return "none" if find_bound(difference) <= MARGIN else "undecided"


def describe_controls(controls: Metrics) -> list[str]:
    """Sentences for the verdict; a warning on the whole comparison where one is due."""
    differences = controls["differences"]
    sentences = list(_describe_no_effect(differences.get(NO_EFFECT, {}), controls))
    without_skill = differences.get(NO_SKILL, {})
    if without_skill:
        gains = join_words(
            f"{describe_gain(name, gain)} over {controls['from'][name]}{certainty(gain)}"
            for name, gain in without_skill.items()
        )
        sentences.append(f"Paid for no skill: {gains}.{_describe_beyond(controls)}")
    return sentences


def certainty(difference: Difference) -> str:
    """Nothing where the difference is significant."""
    return {True: "", False: ", not significant", None: ", untested"}[difference["significant"]]


def _describe_no_effect(differences: Mapping[str, Difference], controls: Metrics) -> Iterator[str]:
    by_outcome: dict[str, list[str]] = {}
    for name, difference in differences.items():
        by_outcome.setdefault(difference["outcome"], []).append(name)
    for name in by_outcome.get("different", []):
        difference, start = differences[name], controls["from"][name]
        does = (
            "a gain of this size in this comparison need not come from what its reward or pairs say"
            if difference["value"] > 0
            else "training alone costs as much, so a loss of this size says nothing of a method"
        )
        yield (
            f"Warning: {name} has nothing to learn and yet differs significantly from {start}, by "
            f"{format_points(difference)} points: {does}."
        )
    if names := by_outcome.get("none", []):
        bound = 100 * max(differences[name]["bound"] for name in names)
        many = len(names) > 1
        yield (
            f"As it should be, {join_words(names)}, which {'have' if many else 'has'} nothing to "
            f"learn, {'do' if many else 'does'} not differ from where {'they' if many else 'it'} "
            f"started: the interval{'s lie' if many else ' lies'} within ±{bound:.1f} points."
        )
    for name in by_outcome.get("undecided", []):
        yield (
            f"{name}, which has nothing to learn, does not differ significantly from "
            f"{controls['from'][name]}, but this is no proof: its interval reaches "
            f"{100 * differences[name]['bound']:.1f} points, and up to "
            f"{100 * controls['margin']:g} count as none."
        )
    if names := by_outcome.get("untested", []):
        listed = join_words(describe_gain(name, differences[name]) for name in names)
        yield f"Nothing to learn: {listed}; with one seed this is not tested."


def _describe_beyond(controls: Metrics) -> str:
    """The policies that are significantly better than every control without skill."""
    better: dict[str, bool] = {}
    for pair, difference in controls["beyond"].items():
        name = pair.partition(" - ")[0]
        is_better = bool(difference["significant"]) and difference["value"] > 0
        better[name] = better.get(name, True) and is_better
    if not better or next(iter(controls["beyond"].values()))["significant"] is None:
        return ""
    above = [name for name, is_better in better.items() if is_better]
    below = [name for name, is_better in better.items() if not is_better]
    lines = f" Significantly better than each of these: {join_words(above or ['none'])}"
    return f"{lines}; not: {join_words(below)}." if below else f"{lines}."
