"""Replies of a judge's server: configuration, URL, parsing, and a cache on disk.

The cache stores the parts of a reply and not the judgement, so a change of `read_judgement` changes
judgements of cached replies too. The cache is not an output: deleting it only costs the requests
again. With it, a killed run sends no request twice, and a rerun on the same inputs gives the same
bits although a server rounds differently from one day to the next.
"""

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, HttpUrl, TypeAdapter, ValidationError

from stages.algorithms.judge_readings import option_probabilities
from stages.config import Params
from stages.models.policy_judge import OPTION_PUNCTUATION
from stages.sampler import Judgement


class EndpointJudgeConfig(Params):
    """Judge behind OpenAI's protocol, of a row `from: base`; its URL is an environment variable."""

    kind: Literal["endpoint"]
    model: str
    """Name of the model on the server."""
    revision: str = Field(min_length=1)
    """Version of the model behind that name, in your words: a commit, a date. It is not sent; a new
    revision is a new judge, for which no replies are cached."""
    api: Literal["chat", "completions"]
    """API to call. `completions`, if the model has no chat template: the message is the prompt."""
    top_logprobs: int = Field(ge=2, le=20)
    """Number of likeliest tokens whose log-probs are requested; most servers allow at most 20."""


def read_url(url: str, variable: str) -> HttpUrl:
    """Parsed `url` of the environment `variable`; a ValueError, without the URL, if malformed."""
    try:
        return TypeAdapter(HttpUrl).validate_python(url)
    except ValidationError:
        raise ValueError(
            f"expected http(s)://host[:port]/v1 in {variable}, found something else (not shown "
            f"here: it may hold a password). Write @, :, / and # inside a password as %40, %3A, "
            f"%2F and %23."
        ) from None


def redact_url(url: HttpUrl) -> str:
    """URL without user, password and query."""
    return f"{url.scheme}://{url.host}:{url.port}{url.path}"


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointReply:
    """Parts of a server's reply."""

    first: Sequence[Sequence[Any]]
    """Text and log-prob of the likeliest first tokens; empty if the server sends none."""
    text: str
    num_prompt_tokens: int
    num_generated_tokens: int


def parse_reply(answer: Any, place: str) -> EndpointReply:
    """Parts of a reply of the chat or the completions API, as the openai client returns it.

    A ValueError, which names the server by `place`, if `answer` is not of OpenAI's protocol (the
    client returns a web page as text), or has no choice.
    """
    choices = getattr(answer, "choices", None)
    if not choices:
        content = "text, such as a web page" if isinstance(answer, str) else "none"
        raise ValueError(
            f"expected `choices` in what {place} answers, as OpenAI's protocol has it, found "
            f"{content}: correct the URL, which ends in /v1, or look into the server's log."
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
    return EndpointReply(
        first=first,
        text=text or "",
        num_prompt_tokens=usage.prompt_tokens if usage is not None else 0,
        num_generated_tokens=usage.completion_tokens if usage is not None else 0,
    )


def read_judgement(
    decision: EndpointReply, thought: EndpointReply | None, options: Sequence[str]
) -> Judgement:
    """Judgement by the first token of `decision`; `thought`, the reasoning, only adds to cost."""
    variants: dict[str, list[float]] = {option: [] for option in options}
    for token, logprob in decision.first:
        if token.strip(OPTION_PUNCTUATION) in variants:
            variants[token.strip(OPTION_PUNCTUATION)].append(logprob)
    probabilities, mass = option_probabilities(
        [logprobs or [-math.inf] for logprobs in variants.values()]
    )
    replies = [decision] if thought is None else [thought, decision]
    return Judgement(
        probabilities=probabilities,
        mass=mass,
        num_prompt_tokens=sum(reply.num_prompt_tokens for reply in replies),
        num_generated_tokens=sum(reply.num_generated_tokens for reply in replies),
        first_token=max(decision.first, key=lambda top: top[1])[0],
    )


@dataclass(frozen=True)
class AnswerCache:
    """Cache of answers, one JSON file each under `folder`; processes may share it."""

    folder: Path

    def get(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Cached answer to this request, or None; a ValueError if `put` did not write its file."""
        path = self._path(request)
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["request"] == request:
                return content["answer"]
        except (json.JSONDecodeError, KeyError, TypeError):
            pass
        raise ValueError(
            f"{path}: expected an answer of the judge with the request that the file is named "
            f"after, found something else: delete this file."
        )

    def put(self, request: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Write the answer to a request atomically."""
        path = self._path(request)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"request": request, "answer": answer}, file, ensure_ascii=False)
        Path(temporary).replace(path)

    def _path(self, request: Mapping[str, Any]) -> Path:
        text = json.dumps(request, sort_keys=True, ensure_ascii=False)
        digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
        return self.folder / digest[:2] / f"{digest}.json"
