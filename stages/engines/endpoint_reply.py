"""What a judge's server replied: the parts that a choice is read from, and the reading.

The parts are what is cached, so that a change of the reading is seen in answers of the past too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.algorithms.judge_readings import option_probabilities
from stages.chooser import Choice
from stages.models.option_tokens import AROUND


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """One reply, as the server sent it."""

    first: Sequence[tuple[str, float]]
    """The likeliest first tokens, as text, with their log-probs; empty where none are told."""
    text: str
    num_prompt_tokens: int
    num_generated_tokens: int


def parts(answer: Any, place: str) -> Reply:
    """The parts of what the client made of a server's reply, of the chat API or the other.

    Args:
        answer: anything: the client hands on a web page as text.
        place: names the server in an error.

    Raises:
        ValueError: it is no answer of OpenAI's protocol, or one without a choice.
    """
    choices = getattr(answer, "choices", None)
    if not choices:
        found = "text, such as a web page" if isinstance(answer, str) else "none"
        raise ValueError(
            f"expected `choices` in what {place} answers, as OpenAI's protocol has it, found "
            f"{found}: correct the URL, which ends in /v1, or look into the server's log."
        )
    choice = choices[0]
    logprobs, first = choice.logprobs, []
    if hasattr(choice, "message"):
        text = choice.message.content
        if logprobs is not None and logprobs.content:
            first = [(top.token, top.logprob) for top in logprobs.content[0].top_logprobs]
    else:
        text = choice.text
        if logprobs is not None and logprobs.top_logprobs:
            first = list((logprobs.top_logprobs[0] or {}).items())
    usage = answer.usage
    return Reply(
        first=first,
        text=text or "",
        num_prompt_tokens=usage.prompt_tokens if usage is not None else 0,
        num_generated_tokens=usage.completion_tokens if usage is not None else 0,
    )


def restored(kept: Mapping[str, Any]) -> Reply:
    """The reply of which `kept` is the JSON: there are no tuples."""
    return Reply(**{**kept, "first": [(token, logprob) for token, logprob in kept["first"]]})


def read(decision: Reply, thought: Reply | None, options: Sequence[str]) -> Choice:
    """The choice that `decision` begins with; `thought` before it is counted as a cost only."""
    variants: dict[str, list[float]] = {option: [] for option in options}
    for token, logprob in decision.first:
        if token.strip(AROUND) in variants:
            variants[token.strip(AROUND)].append(logprob)
    probabilities, mass = option_probabilities(
        [logprobs or [-math.inf] for logprobs in variants.values()]
    )
    replies = [decision] if thought is None else [thought, decision]
    return Choice(
        probabilities=probabilities,
        mass=mass,
        num_prompt_tokens=sum(reply.num_prompt_tokens for reply in replies),
        num_generated_tokens=sum(reply.num_generated_tokens for reply in replies),
        first_token=max(decision.first, key=lambda told: told[1])[0],
    )
