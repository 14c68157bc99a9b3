"""What scorers say of right and wrong completions, in words and tables (Markdown)."""

from collections.abc import Mapping
from typing import Any

from stages.reports import markdown
from stages.reports.markdown import number, percent


def render(
    scorers: Mapping[str, Mapping[str, Any]],
    images: Mapping[str, str],
    *,
    baseline: str,
    confidence: float,
) -> str:
    """The section.

    Args:
        scorers: for each scorer what `score_shifts.measure` found.
        images: for each scorer its plot, relative to the report.
        baseline: the policy whose mean score is zero.
        confidence: of the intervals.
    """
    parts = [
        "# Rewards of right and wrong completions",
        f"A scorer's scores can be compared within a problem only. So here each is taken minus the "
        f"mean score of {baseline}'s samples of the same problem: zero is a typical answer of "
        f"{baseline}. In brackets {confidence:.0%} intervals over problems. Exploited: the share "
        f"of wrong completions that score above {baseline}'s mean right completion of the same "
        f"problem; a policy that games the scorer has many.",
    ]
    if not scorers:
        parts.append("This plan scores no completions.")
    for scorer, policies in scorers.items():
        rows = [
            [
                name,
                *(number(one[kind]) for kind in ("all", "right", "wrong")),
                percent(one["exploited"]),
            ]
            for name, one in policies.items()
        ]
        parts += [
            f"## {scorer}",
            markdown.table(
                ["policy", "mean", "right completions", "wrong completions", "exploited"], rows
            ),
            f"![Scores of right and wrong completions by {scorer}]({images[scorer]})",
        ]
    return "\n\n".join(parts) + "\n"
