"""Controls, trainings that must not make a policy more skilful, and the verdict on them.

A row of `policies` with the key `control` is compared with the policy of its `from`, paired by seed
and problem, and with nothing else: it is in no table, test or ranking of the other policies.

- `no_effect`: there is nothing to learn, as with a coin toss as reward. Mean accuracy must not
  change.
- `no_skill`: the reward pays for something that is not a skill, such as length. A gain is no error:
  it shows how much of another policy's gain may not be skill either. The test is by how much the
  other policies exceed it.

A difference that is not significant may still exist. An interval within ±`MARGIN` shows that there
is none: an equivalence test by two one-sided tests (Schuirmann 1987,
https://doi.org/10.1007/BF01068419), which with a 95 % interval has a level of 2.5 %. The claim that
all controls are without effect needs no adjustment, since each of them must pass; the claim that
one has an effect is adjusted by Holm's method among those of its kind.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Literal

from stages.records.metrics import round_metric
from stages.report.comparison import Difference, estimate_intervals, test_differences
from stages.report.estimates import FIELDS, GREEDY, MEAN, TOKENS, Results
from stages.report.stage_metrics import Plan
from stages.report.verdict import Metrics, format_points, join_words

KINDS = NO_EFFECT, NO_SKILL = "no_effect", "no_skill"
MARGIN = 0.02
"""Differences of mean accuracy up to 2 points count as none (ours)."""
WITHOUT_ANSWERS = (
    "No answer can be checked, so the controls (key `control` of a row) are not compared."
)
Outcome = Literal["none", "different", "undecided", "untested"]
CERTAINTY = {True: "", False: ", not significant", None: ", untested"}


def find_controls(plan: Plan, names: Collection[str]) -> dict[str, Mapping[str, Any]]:
    """Rows of those of the named policies that are controls."""
    return {
        name: row for name, row in plan["policies"].items() if row.get("control") and name in names
    }


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
        metrics["controls"] = content = compare_controls(results, rows)
        no_effect = content["differences"].get(NO_EFFECT, {})
        # Doubts about the verdict come before it.
        warnings, rest = (
            [
                describe_no_effect(name, content)
                for name in no_effect
                if (no_effect[name]["outcome"] == "different") == casts_doubt
            ]
            for casts_doubt in (True, False)
        )
        rest += [
            describe_no_skill(name, content) for name in content["differences"].get(NO_SKILL, {})
        ]
        metrics["verdict"] = [*warnings, *metrics["verdict"], *rest]
    elif rows:
        metrics["verdict"].append(WITHOUT_ANSWERS)


def compare_controls(results: Results, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Controls against the policies that they start from; the other policies against controls.

    Args:
        results: Of all policies, controls among them; the baseline is the first.
        rows: The rows of the controls.

    Returns:
        `policies`, the estimates of controls; `differences` and `greedy`, by kind and name, those
        without effect with their `outcome`; `beyond`, the gain of each other policy over each
        control without skill.
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

    A significant difference counts, however small.
    """
    if difference["significant"] is None:
        return "untested"
    if difference["significant"]:
        return "different"
    return "none" if find_bound(difference) <= MARGIN else "undecided"


def describe_no_effect(name: str, controls: Metrics) -> str:
    """Sentence on a control that has nothing to learn."""
    difference, start = controls["differences"][NO_EFFECT][name], controls["from"][name]
    points = f"{format_points(difference)} points"
    if difference["outcome"] == "different":
        return (
            f"Warning: {name} has nothing to learn and yet differs significantly from {start}, by "
            f"{points}: a gain or a loss of this size need not come from what a method learns."
        )
    reach = (
        f"(the interval reaches {100 * difference['bound']:.3g} points; "
        f"±{100 * controls['margin']:g} points count as none)"
    )
    result = {
        "none": f"no difference, as it should be {reach}",
        "undecided": f"not significant, but no proof that there is no difference {reach}",
        "untested": "fewer than three seeds are no test",
    }[difference["outcome"]]
    return f"With nothing to learn {name} is {points} from {start}: {result}."


def describe_no_skill(name: str, controls: Metrics) -> str:
    """Sentence on a control whose reward is not for a skill, and the policies that are better."""
    gain = controls["differences"][NO_SKILL][name]
    better = [
        pair.removesuffix(f" - {name}")
        for pair, difference in controls["beyond"].items()
        if pair.endswith(f" - {name}") and difference["significant"] and difference["value"] > 0
    ]
    beyond = f"; significantly better than it: {join_words(better or ['no policy'])}"
    return (
        f"Paid for no skill {name} is {format_points(gain)} points from {controls['from'][name]}"
        f"{CERTAINTY[gain['significant']]}{'' if gain['significant'] is None else beyond}."
    )
