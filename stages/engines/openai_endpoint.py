"""Any server that speaks OpenAI's protocol as a judge, `vllm serve` included.

The only file that imports openai. Where the server is and how many requests it gets at once comes
from the environment and changes no output; which model answers is identity. Answers are cached by
content. A server shows at most the 20 likeliest tokens, so an option below them counts as 0.
"""

import logging
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import openai

from stages.algorithms.option_probabilities import option_probabilities
from stages.chooser import Choice
from stages.engines.answer_cache import AnswerCache
from stages.models.option_tokens import AROUND
from stages.rewards.feedback import reasoning
from stages.rewards.feedback.untrusted_text import defuse

URL, KEY, CONCURRENCY = (
    "POSTTRAIN_JUDGE_URL",
    "POSTTRAIN_JUDGE_API_KEY",
    "POSTTRAIN_JUDGE_CONCURRENCY",
)
RETRIES = 5
"""Of a request that timed out, was refused for its rate, or met an error of the server; the client
waits 0.5, 1, 2, ... seconds at most 8, less a random quarter, or as long as the server asks."""
TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class EndpointChooser:
    """Asks `model` by `client`."""

    client: openai.OpenAI
    model: str
    api: Literal["chat", "completions"]
    """`completions`: the message is the prompt itself, for a model without a chat template."""
    top_logprobs: int
    """Of so many likeliest tokens the server tells the probability."""
    reasoning_tokens: int
    """At most so many, greedily, before the choice; 0: none."""
    options: Sequence[str]
    cache: AnswerCache
    concurrency: int

    def choose(self, messages: Sequence[str]) -> list[Choice | None]:
        """See `stages.chooser.Chooser.choose`.

        Raises:
            ValueError: the server cannot be reached, refuses the key or the request, does not
                know the model, or tells no log-probs.
        """
        different = list(dict.fromkeys(messages))
        # The first alone: if it fails, no crowd of others has to fail before that is told.
        answers = [self._ask(message) for message in different[:1]]
        with ThreadPoolExecutor(self.concurrency) as pool:
            answers += pool.map(self._ask, different[1:])
        found = dict(zip(different, answers, strict=True))
        return [found[message] for message in messages]

    def _ask(self, message: str) -> Choice:
        message = defuse(message)
        request = {
            "model": self.model,
            "api": self.api,
            "message": message,
            "options": list(self.options),
            "top_logprobs": self.top_logprobs,
        }
        if self.reasoning_tokens:
            request["reasoning_tokens"] = self.reasoning_tokens
            request["reasoning"] = [reasoning.REQUEST, reasoning.CUE, reasoning.VERDICT]
        known = self.cache.get(request)
        if known is None:
            try:
                known = asdict(self._request(message))
            except openai.APIError as error:
                raise ValueError(self._trouble(error)) from error
            self.cache.put(request, known)
        return Choice(**known)

    def _request(self, message: str) -> Choice:
        turns = [{"role": "user", "content": message}]
        spent = [0, 0]
        if self.reasoning_tokens:
            turns[0]["content"] += reasoning.REQUEST
            thought = self._complete(turns, self.reasoning_tokens)
            turns.append({"role": "assistant", "content": _text(thought)})
            turns.append({"role": "user", "content": reasoning.VERDICT})
            _spend(spent, thought)
        answer = self._complete(turns, 1)
        _spend(spent, answer)
        variants: dict[str, list[float]] = {option: [] for option in self.options}
        for token, logprob in self._first_token(answer):
            if token.strip(AROUND) in variants:
                variants[token.strip(AROUND)].append(logprob)
        probabilities, mass = option_probabilities(
            [logprobs or [-math.inf] for logprobs in variants.values()]
        )
        return Choice(
            probabilities=probabilities,
            mass=mass,
            num_prompt_tokens=spent[0],
            num_generated_tokens=spent[1],
        )

    def _complete(self, turns: list[dict[str, str]], max_tokens: int) -> Any:
        settings: dict[str, Any] = {
            "model": self.model,
            "max_tokens": max_tokens,
            "temperature": 0.0,
        }
        if self.api == "chat":
            settings |= {"logprobs": True, "top_logprobs": self.top_logprobs}
            return self.client.chat.completions.create(messages=turns, **settings)  # pyright: ignore
        cue = reasoning.CUE if len(turns) > 1 else ""
        prompt = "".join(turn["content"] for turn in turns[:2]) + cue
        return self.client.completions.create(prompt=prompt, logprobs=self.top_logprobs, **settings)

    def _first_token(self, answer: Any) -> list[tuple[str, float]]:
        """The likeliest first tokens of an answer, as text, with their log-probs."""
        logprobs = answer.choices[0].logprobs if answer.choices else None
        if self.api == "chat" and logprobs is not None and logprobs.content:
            return [(top.token, top.logprob) for top in logprobs.content[0].top_logprobs]
        if self.api == "completions" and logprobs is not None and logprobs.top_logprobs:
            return list(logprobs.top_logprobs[0].items())
        raise ValueError(
            f"expected the log-probs of the answer's first token, found none in what the judge at "
            f"{_shown(self.client)} answered: a judge needs a server that tells them (logprobs, "
            f"top_logprobs), as vllm serve does."
        )

    def _trouble(self, error: openai.APIError) -> str:
        place = f"the judge at {_shown(self.client)} (environment variable {URL})"
        match error:
            case openai.APIConnectionError():
                return (
                    f"expected {place} to answer, found that it cannot be reached: {error}. Start "
                    f"it (vllm serve <model>), correct the URL, or judge with a policy "
                    f"(judge_preferences.judge: {{kind: policy}})."
                )
            case openai.AuthenticationError() | openai.PermissionDeniedError():
                return f"{place} refuses the key: set the environment variable {KEY}."
            case openai.NotFoundError():
                return (
                    f"{place} knows no model '{self.model}' or no {self.api} API: correct "
                    f"judge_preferences.judge in params.yaml, or the URL, which ends in /v1."
                )
        return (
            f"{place} refuses the request: {error}. Where the prompt is too long for the model, "
            f"serve it with more positions or shorten max_new_tokens of sample_candidates."
        )


def connect(
    *,
    model: str,
    api: Literal["chat", "completions"],
    top_logprobs: int,
    reasoning_tokens: int,
    options: Sequence[str],
    cache: AnswerCache,
    environment: Mapping[str, str] = os.environ,
    retries: int = RETRIES,
) -> EndpointChooser:
    """The endpoint that the environment names; nothing is sent yet.

    Raises:
        ValueError: the environment names none, or a concurrency that is no number above 0.
    """
    url = environment.get(URL)
    if not url:
        raise ValueError(
            f"params.yaml asks for the judge '{model}' behind an endpoint; expected its URL in the "
            f"environment variable {URL} (such as http://127.0.0.1:8000/v1), found none. Set it, "
            f"and {KEY} if it asks for a key."
        )
    concurrency = environment.get(CONCURRENCY, "8")
    if not concurrency.isdecimal() or int(concurrency) < 1:
        raise ValueError(f"expected a number above 0 in {CONCURRENCY}, found {concurrency!r}")
    for name in ("httpx", "httpx2"):  # they log every URL, which may hold a password
        logging.getLogger(name).setLevel(logging.WARNING)
    client = openai.OpenAI(
        base_url=url,
        api_key=environment.get(KEY) or "none",
        max_retries=retries,
        timeout=TIMEOUT_SECONDS,
    )
    return EndpointChooser(
        client=client,
        model=model,
        api=api,
        top_logprobs=top_logprobs,
        reasoning_tokens=reasoning_tokens,
        options=options,
        cache=cache,
        concurrency=int(concurrency),
    )


def _text(answer: Any) -> str:
    choice = answer.choices[0]
    return (choice.message.content if hasattr(choice, "message") else choice.text) or ""


def _spend(spent: list[int], answer: Any) -> None:
    if answer.usage is not None:
        spent[0] += answer.usage.prompt_tokens
        spent[1] += answer.usage.completion_tokens


def _shown(client: openai.OpenAI) -> str:
    """The URL without user, password and query."""
    parts = urlsplit(str(client.base_url))
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
