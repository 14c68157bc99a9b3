"""What stands above the transcripts: the rule, and how often each verdict changed (Markdown)."""

from collections.abc import Mapping, Sequence

from stages.reports import markdown, transcript_choice


def render(greedy_right: Mapping[str, Sequence[bool]], baseline: str) -> str:
    """The section without its cards."""
    changes = transcript_choice.transitions(greedy_right, baseline)
    rows = [[name, *(str(count) for count in counts)] for name, counts in changes.items()]
    parts = [
        "# The same problems, before and after",
        transcript_choice.RULE.format(baseline=baseline),
        f"How often the verdict on the greedy completion changed, of "
        f"{len(greedy_right[baseline])} problems:",
        markdown.table(
            ["policy", f"right as {baseline}", "gained", "lost", f"wrong as {baseline}"], rows
        ),
    ]
    return "\n\n".join(parts) + "\n"
