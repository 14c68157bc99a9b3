"""Accuracy by difficulty, in words and tables (Markdown)."""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.reports import markdown
from stages.reports.markdown import percent, points


def render(groups: Sequence[Mapping[str, Any]], *, confidence: float) -> str:
    """The section.

    Args:
        groups: what `difficulty.measure` found, the hardest group first.
        confidence: of the intervals.
    """
    baseline, *others = groups[0]["policies"]
    header = [f"{one['group']}{_end(one, groups)} ({one['problems']})" for one in groups]
    accuracies = [
        [name, *(percent(one["policies"][name]["accuracy"]) for one in groups)]
        for name in (baseline, *others)
    ]
    gains = [[name, *(points(one["policies"][name]["gain"]) for one in groups)] for name in others]
    assigned = ", ".join(f"{one['assigned']:.1%}" for one in groups)
    parts = [
        "# Accuracy by difficulty",
        f"Problems in {len(groups)} groups of equal size by the pass rate of {baseline}. Its "
        f"samples are split in halves: the even-numbered tell a problem's difficulty, the "
        f"odd-numbered measure {baseline}. Were it one half for both, the hardest group would hold "
        f"the unlucky problems, {baseline} would seem worse there than it is, and every other "
        f"policy would seem to gain by the mere return of luck. The halves that chose the groups "
        f"had pass rates of {assigned}. Accuracy is that of one random sample; in brackets "
        f"{confidence:.0%} intervals over the problems of the group, whose number stands in the "
        f"header.",
        markdown.table(["policy", *header], accuracies),
        "![Accuracy of each policy in each group of difficulty](plots/difficulty.png)",
    ]
    if others:
        parts += [
            f"## Gain over {baseline} by difficulty",
            "Percentage points, paired by problem. **Bold**: the interval excludes zero. The "
            "easiest problems have the least to gain.",
            markdown.table(["policy", *header], gains),
        ]
    return "\n\n".join(parts) + "\n"


def _end(one: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> str:
    if one is groups[0]:
        return " hardest"
    return " easiest" if one is groups[-1] else ""
