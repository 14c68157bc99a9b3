"""The same problems as each policy answers them, as cards of HTML.

What a model wrote is escaped and nothing else: it is neither read as Markdown nor cut.
"""

import html
from collections.abc import Mapping, Sequence

from stages.records.problems import Prompt
from stages.reports.policy_samples import PolicySamples
from stages.reports.transcript_choice import Chosen


def cards(
    chosen: Sequence[Chosen], prompts: Sequence[Prompt], policies: Mapping[str, PolicySamples]
) -> str:
    """One card a problem: question, gold answer, and each policy's greedy completion."""
    return "\n".join(card(one, prompts[one.place], policies) for one in chosen)


def card(chosen: Chosen, prompt: Prompt, policies: Mapping[str, PolicySamples]) -> str:
    """One problem."""
    answers = [
        answer(name, policy.greedy[chosen.place], right=policy.greedy_right[chosen.place])
        for name, policy in policies.items()
    ]
    return "\n".join(
        [
            '<article class="problem">',
            f"<h3>{html.escape(prompt.id)}: {html.escape(chosen.reason)}</h3>",
            f'<p class="question">{html.escape(prompt.question)} '
            f"<strong>Gold answer: {html.escape(prompt.answer)}</strong></p>",
            '<div class="answers">',
            *answers,
            "</div>",
            "</article>",
        ]
    )


def answer(policy: str, completion: str, *, right: bool) -> str:
    """What one policy wrote, and the answer checker's verdict in words."""
    kind, word = ("right", "✓ right") if right else ("wrong", "✗ wrong")
    text = html.escape(completion) if completion.strip() else "<em>nothing</em>"
    return (
        f'<div class="answer {kind}"><h4>{html.escape(policy)}'
        f'<span class="verdict">{word}</span></h4><pre>{text}</pre></div>'
    )
