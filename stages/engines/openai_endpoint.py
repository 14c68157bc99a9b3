"""Judge on a server with OpenAI's API, such as `vllm serve`.

Only this module imports openai. URL and number of concurrent requests come from environment
variables and change no output. Replies are cached by request. A server returns at most the 20
likeliest tokens, so an option that is not among them has probability 0.
"""

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import openai

from stages import meter
from stages.engines import endpoint_reply
from stages.engines.endpoint_reply import AnswerCache, EndpointJudgeConfig, EndpointReply
from stages.rewards.feedback import prompts
from stages.rewards.feedback.prompts import defuse
from stages.sampler import Judgement

URL = "POSTTRAIN_JUDGE_URL"
KEY = "POSTTRAIN_JUDGE_API_KEY"
CONCURRENCY = "POSTTRAIN_JUDGE_CONCURRENCY"
RETRIES = 5
"""Retries after a timeout, a rate limit, or a server error; the client waits 0.5, 1, 2, ... seconds
(at most 8), less up to a quarter at random, or as long as the server says."""
TIMEOUT_SECONDS = 120.0
TOO_LONG = re.compile(
    r"context[ _-]?(length|size|window)|maximum (model|sequence) length|too long", re.IGNORECASE
)
"""Message of an HTTP 400 for a request longer than the model's context. Servers word it
differently: OpenAI and vLLM name the context or the model's length, llama.cpp the context size."""


@dataclass(frozen=True, kw_only=True)
class EndpointJudge:
    """Judge whose requests are sent by `client`."""

    client: openai.OpenAI
    judge: EndpointJudgeConfig
    reasoning_tokens: int
    """Limit of tokens of greedy reasoning before the choice; 0: no reasoning."""
    options: Sequence[str]
    cache: AnswerCache
    concurrency: int

    def stream(self, messages: Sequence[str]) -> Iterator[tuple[int, Judgement | None]]:
        """See `stages.sampler.Judge.stream`; a ValueError if the server cannot judge."""
        numbers: dict[str, list[int]] = {}
        for number, message in enumerate(messages):
            numbers.setdefault(message, []).append(number)
        distinct = list(numbers)
        with ThreadPoolExecutor(self.concurrency) as pool:
            # The first request by itself: if it fails, the others are not sent.
            for part in (distinct[:1], distinct[1:]):
                for message, judgement in zip(part, pool.map(self._request, part), strict=True):
                    for number in numbers[message]:
                        yield number, judgement

    def _request(self, message: str) -> Judgement | None:
        meter.COUNTS["messages"] += 1
        try:
            return self._choose(defuse(message))
        except (openai.APIError, json.JSONDecodeError) as error:
            if isinstance(error, openai.BadRequestError) and TOO_LONG.search(str(error)):
                return None
            raise ValueError(
                f"expected {self._place} to answer for the model '{self.judge.model}', found "
                f"{type(error).__name__}: {error}. Start it (vllm serve <model>), or correct the "
                f"URL, which ends in /v1, the key ({KEY}) or `judge` of the preset."
            ) from error

    def _choose(self, message: str) -> Judgement:
        turns, thought = [{"role": "user", "content": message}], None
        if self.reasoning_tokens:
            turns[0]["content"] += prompts.REASONING_REQUEST
            thought = self._complete(turns, self.reasoning_tokens, {})
            # Quotations of the answers may spell a control token.
            turns.append({"role": "assistant", "content": defuse(thought.text)})
            turns.append({"role": "user", "content": prompts.VERDICT_REQUEST})
        chat = {"logprobs": True, "top_logprobs": self.judge.top_logprobs}
        logprobs = chat if self.judge.api == "chat" else {"logprobs": self.judge.top_logprobs}
        decision = self._complete(turns, 1, logprobs)
        return endpoint_reply.read_judgement(decision, thought, self.options)

    def _complete(
        self, turns: list[dict[str, str]], max_tokens: int, logprobs: dict[str, Any]
    ) -> EndpointReply:
        """Reply to `turns`; `logprobs`: options for log-probs, which the reply must then have."""
        model = self.judge.model
        request = {"model": model, "max_tokens": max_tokens, "temperature": 0.0} | logprobs
        if self.judge.api == "chat":
            request["messages"] = turns
        else:
            cue = prompts.REASONING_CUE if len(turns) > 1 else ""
            request["prompt"] = "".join(turn["content"] for turn in turns[:2]) + cue
        key = {"api": self.judge.api, "revision": self.judge.revision, "request": request}
        cached = self.cache.get(key)
        if cached is not None:
            return EndpointReply(**cached)
        chat, plain = self.client.chat.completions, self.client.completions
        answer: Any = (chat if self.judge.api == "chat" else plain).create(**request)
        reply = endpoint_reply.parse_reply(answer, self._place)
        if logprobs and not reply.first:
            raise ValueError(
                f"expected the log-probs of the answer's first token, found none in the reply of "
                f"{self._place}: a judge needs a server that sends them (logprobs, "
                f"top_logprobs), as vllm serve does."
            )
        self.cache.put(key, asdict(reply))
        return reply

    @property
    def _place(self) -> str:
        url = endpoint_reply.redact_url(endpoint_reply.read_url(str(self.client.base_url), URL))
        return f"the judge at {url} (environment variable {URL})"


def connect_endpoint(
    judge: EndpointJudgeConfig,
    options: Sequence[str],
    reasoning_tokens: int,
    cache: AnswerCache,
    *,
    environment: Mapping[str, str] = os.environ,
    retries: int = RETRIES,
) -> EndpointJudge:
    """Judge at the URL in the environment variable, or a ValueError; sends no request yet."""
    url = environment.get(URL)
    if not url:
        raise ValueError(
            f"params.yaml names the judge '{judge.model}' behind an endpoint; expected its URL "
            f"in the environment variable {URL} (such as http://127.0.0.1:8000/v1), found none. "
            f"Set it, and {KEY} if it asks for a key."
        )
    base_url = str(endpoint_reply.read_url(url, URL))  # as parsed here: other parsers differ
    concurrency = environment.get(CONCURRENCY, "8")
    if not concurrency.isdecimal() or int(concurrency) < 1:
        raise ValueError(f"expected a number above 0 in {CONCURRENCY}, found {concurrency!r}")
    for name in ("httpx", "httpx2"):  # they log every URL, which may contain a password
        logging.getLogger(name).setLevel(logging.WARNING)
    return EndpointJudge(
        client=openai.OpenAI(
            base_url=base_url,
            api_key=environment.get(KEY) or "none",
            max_retries=retries,
            timeout=TIMEOUT_SECONDS,
        ),
        judge=judge,
        options=options,
        reasoning_tokens=reasoning_tokens,
        cache=cache,
        concurrency=int(concurrency),
    )
