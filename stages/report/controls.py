"""Controls, trainings that must not make a policy more skilful, and the verdict on them.

A row of `policies` with the key `control` is compared with the policy of its `from`, paired by seed
and problem, and with nothing else: it is in no table, test or ranking of the other policies.

- `no_effect`: there is nothing to learn, as with a coin toss as reward. Mean accuracy must not
  change.
- `no_skill`: the reward pays for something that is no skill, such as length. A gain is no error: it
  shows how much of another policy's gain may be no skill either. Tested is by how much the other
  policies exceed it.

A difference that is not significant may still exist. That there is none is shown by an interval
within ±`MARGIN`: an equivalence test by two one-sided tests (Schuirmann 1987,
https://doi.org/10.1007/BF01068419), which with a 95 % interval has a level of 2.5 %. The claim that
all controls are without effect needs no adjustment, since each of them must pass; the claim that
one has an effect is adjusted by Holm's method among those of its kind.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

from stages.records.metrics import round_metric
from stages.report.comparison import Difference, estimate_intervals, test_differences
from stages.report.estimates import FIELDS, GREEDY, MEAN, TOKENS, Results
from stages.report.stage_metrics import Plan
from stages.report.verdict import Metrics, format_points, format_range, join_words

KINDS = NO_EFFECT, NO_SKILL = "no_effect", "no_skill"
MARGIN = 0.02
"""Differences of mean accuracy up to 2 points count as none (ours)."""
WITHOUT_ANSWERS = (
    "No answer can be checked, so the controls (key `control` of a row) are not compared."
)
Outcome = Literal["none", "different", "undecided", "untested"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
CERTAINTY = {True: "", False: ", not significant", None: ", untested"}


def find_controls(plan: Plan, names: Collection[str]) -> dict[str, Mapping[str, Any]]:
    """The rows of policies that are controls, of these names."""
    return {
        name: row for name, row in plan["policies"].items() if row.get("control") and name in names
    }


def find_without_start(plan: Plan, evaluated: Collection[str]) -> dict[str, str]:
    """Control -> the policy that it starts from, where that was not evaluated."""
    rows = find_controls(plan, evaluated)
    return {name: row["from"] for name, row in rows.items() if row["from"] not in evaluated}


def leave_out(results: Results, names: Mapping[str, Any]) -> Results:
    """The results without those of some policies."""
    parts = {
        part: {name: value for name, value in getattr(results, part).items() if name not in names}
        for part in ("tables", "halves", "metrics", "temperatures")
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
        warnings = describe_warnings(metrics["controls"])
        metrics["verdict"] = [
            *warnings, *metrics["verdict"], *describe_controls(metrics["controls"])
        ]  # fmt: skip
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
    by_kind = {
        kind: [name for name, row in rows.items() if row["control"] == kind] for kind in KINDS
    }
    differences, greedy = (
        {
            kind: test_differences(
                {name: tables[name][key] - tables[rows[name]["from"]][key] for name in names},
                results,
            )
            for kind, names in by_kind.items()
            if names
        }
        for key in (MEAN, GREEDY)
    )
    for name, difference in differences.get(NO_EFFECT, {}).items():
        differences[NO_EFFECT][name] = difference | {
            "outcome": judge_no_effect(difference), "bound": find_bound(difference),
        }  # fmt: skip
    compared = [name for name in tables if name not in rows and name != baseline]
    beyond = {
        f"{name} - {control}": tables[name][MEAN] - tables[control][MEAN]
        for control in by_kind[NO_SKILL]
        for name in compared
    }
    return {
        "margin": MARGIN, "from": {name: row["from"] for name, row in rows.items()},
        "policies": {
            name: estimate_intervals(
                {key: tables[name][key] for key in FIELDS}, results, no_shares=[TOKENS]
            )
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


def describe_warnings(controls: Metrics) -> list[str]:
    """Sentences on controls that differ although they have nothing to learn."""
    return [
        f"Warning: {name} has nothing to learn and yet differs significantly from "
        f"{controls['from'][name]}, by {format_points(difference)} points: "
        + (
            "in this comparison a gain of this size need not come from what a method learns."
            if difference["value"] > 0
            else "training alone costs as much, so a loss of this size says nothing of a method."
        )
        for name, difference in controls["differences"].get(NO_EFFECT, {}).items()
        if difference["outcome"] == "different"
    ]


def describe_controls(controls: Metrics) -> list[str]:
    """Sentences on the other controls."""
    no_effect = controls["differences"].get(NO_EFFECT, {})
    no_skill = controls["differences"].get(NO_SKILL, {})
    by_outcome: dict[Outcome, list[str]] = {
        outcome: [name for name in no_effect if no_effect[name]["outcome"] == outcome]
        for outcome in OUTCOMES
    }
    sentences: list[str] = []
    if names := by_outcome["none"]:
        bound = 100 * max(no_effect[name]["bound"] for name in names)
        sentences.append(
            f"With nothing to learn no difference, as it should be: {join_words(names)}, within "
            f"±{bound:.1f} points of where training started."
        )
    sentences += [
        f"With nothing to learn {name} does not differ significantly from "
        f"{controls['from'][name]}, which is no proof that there is no difference: the interval "
        f"reaches {100 * no_effect[name]['bound']:.1f} points, and up to "
        f"{100 * controls['margin']:g} would count as none."
        for name in by_outcome["undecided"]
    ]
    if names := by_outcome["untested"]:
        listed = f"{join_words(names)} ({format_range(no_effect, names)} points)"
        sentences.append(f"With nothing to learn {listed}: fewer than three seeds are no test.")
    if no_skill:
        gains = join_words(
            f"{name} ({format_points(gain)} points over {controls['from'][name]}"
            f"{CERTAINTY[gain['significant']]})"
            for name, gain in no_skill.items()
        )
        sentences.append(f"Paid for no skill: {gains}.{_describe_beyond(controls)}")
    return sentences


def _describe_beyond(controls: Metrics) -> str:
    """The policies that are significantly better than every control without skill."""
    is_better: dict[str, bool | None] = {}
    for pair, difference in controls["beyond"].items():
        name, significant = pair.partition(" - ")[0], difference["significant"]
        is_above = significant and difference["value"] > 0
        is_better[name] = is_above and is_better.get(name, True)
    if not is_better or None in is_better.values():
        return ""
    above = [name for name, better in is_better.items() if better]
    below = [name for name, better in is_better.items() if not better]
    not_better = f"; not so: {join_words(below)}" if below else ""
    listed = join_words(above or ["no policy"])
    return f" Significantly better than each of these: {listed}{not_better}."
