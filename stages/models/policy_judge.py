"""A local causal language model as a judge, on any engine.

An option's probability is that of the tokens that spell it, right after the prompt.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.algorithms.judge_readings import option_probabilities
from stages.engines import transformers
from stages.models import model_tokenizer, policy, prompting
from stages.models.chat_template import begin_reply, close_thinking
from stages.models.device import ComputeConfig
from stages.records.problems import THOUGHTS, find_begun_thought, find_open_thought
from stages.rewards.feedback.prompts import REASONING_CUE, REASONING_REQUEST
from stages.sampler import Engine, Judgement

OPTION_PUNCTUATION = " \t\r\n()[]{}<>.,:;*\"'`"
"""Characters around an option that do not change what it is: "(1)", " 1.", "**1"."""


def option_tokens(tokenizer: PreTrainedTokenizerBase, options: Sequence[str]) -> list[list[int]]:
    """Token ids, ascending, that spell each option.

    Their text without `OPTION_PUNCTUATION` is the option; special tokens are left out. A ValueError
    where there is none for an option.
    """
    special = set(tokenizer.all_special_ids)
    option_ids: dict[str, list[int]] = {option: [] for option in options}
    for token_id in sorted(set(tokenizer.get_vocab().values()) - special):
        text = str(tokenizer.decode([token_id])).strip(OPTION_PUNCTUATION)
        if text in option_ids:
            option_ids[text].append(token_id)
    missing = [option for option, ids in option_ids.items() if not ids]
    if missing:
        raise ValueError(
            f"expected one token for each of the options {list(options)}, found none for "
            f"{missing} in the judge's vocabulary: judge with a model whose tokenizer has them."
        )
    return [option_ids[option] for option in options]


def get_cue(
    tokenizer: PreTrainedTokenizerBase, *, has_reasoning: bool, thought: str = ""
) -> list[int]:
    """Tokens before the option: a cue after reasoning, else what begins any reply.

    `thought`: beginning of a thought that the reasoning leaves open (`THOUGHTS`); the cue ends it.
    """
    if has_reasoning:
        cue = close_thinking(thought) + REASONING_CUE
    else:
        (prompt,) = prompting.render_prompts(["?"], tokenizer, prompting.PLACEHOLDER)
        cue = begin_reply(prompt, "", tokenizer)
    (token_ids,) = prompting.tokenize_continuation([cue], tokenizer)
    return token_ids


def count_cue_tokens(tokenizer: PreTrainedTokenizerBase, *, has_reasoning: bool) -> int:
    """Number of tokens of the longest cue."""
    thoughts = ["", *THOUGHTS] if has_reasoning else [""]
    cues = [get_cue(tokenizer, has_reasoning=has_reasoning, thought=name) for name in thoughts]
    return max(map(len, cues))


@dataclass(frozen=True, kw_only=True)
class PolicyJudge:
    """Judge by the next-token distribution at the end of the rendered message."""

    engine: Engine
    tokenizer: PreTrainedTokenizerBase
    option_ids: list[list[int]]
    """See `option_tokens`."""
    max_prompt_tokens: int
    """Longest message; a longer one gets no judgement."""
    reasoning_tokens: int
    """Limit of tokens of greedy reasoning before the choice; 0: no reasoning."""

    def stream(self, messages: Sequence[str]) -> Iterator[tuple[int, Judgement | None]]:
        """See `stages.sampler.Judge.stream`."""
        request = REASONING_REQUEST if self.reasoning_tokens else ""
        requests = [message + request for message in messages]
        prompts = prompting.tokenize_messages(requests, self.tokenizer)
        fitting = [i for i, ids in enumerate(prompts) if len(ids) <= self.max_prompt_tokens]
        for number in sorted({*range(len(prompts))} - {*fitting}):
            yield number, None
        if fitting:
            yield from self._judge({i: prompts[i] for i in fitting})

    def _judge(self, prompts: Mapping[int, list[int]]) -> Iterator[tuple[int, Judgement]]:
        numbers, has_reasoning = list(prompts), self.reasoning_tokens > 0
        reasonings, thoughts = [list[int]() for _ in prompts], [""] * len(prompts)
        if has_reasoning:
            samples = self.engine.sample(
                list(prompts.values()), [0] * len(prompts), num_samples=1, temperature=0.0,
                max_new_tokens=self.reasoning_tokens,
            )  # fmt: skip
            # The engine knows all tokens that end a sequence, the tokenizer only one of them.
            reasonings = [
                sample.token_ids[:-1] if sample.finish_reason == "stop" else sample.token_ids
                for (sample,) in samples
            ]
            # Within a thought a model still weighs both answers: its next token is no choice.
            pairs = zip(prompts.values(), reasonings, strict=True)
            texts = [[str(self.tokenizer.decode(ids)) for ids in pair] for pair in pairs]
            thoughts = [
                find_open_thought(find_begun_thought(prompt) + text) for prompt, text in texts
            ]
        cues = {
            thought: get_cue(self.tokenizer, has_reasoning=has_reasoning, thought=thought)
            for thought in set(thoughts)
        }
        contexts = [
            [*ids, *reasoning, *cues[thought]]
            for ids, reasoning, thought in zip(prompts.values(), reasonings, thoughts, strict=True)
        ]
        token_ids = [token_id for ids in self.option_ids for token_id in ids]
        for place, row in self.engine.next_logprobs(contexts, token_ids):
            logprobs = iter(row)
            variants = [[next(logprobs) for _ in ids] for ids in self.option_ids]
            probabilities, mass = option_probabilities(variants)
            judgement = Judgement(
                probabilities=probabilities, mass=mass,
                num_prompt_tokens=len(prompts[numbers[place]]),
                num_generated_tokens=len(reasonings[place]),
            )  # fmt: skip
            yield numbers[place], judgement


def load_judge(
    path: Path, options: Sequence[str], compute: ComputeConfig, device: torch.device
) -> PolicyJudge:
    """The policy at `path` as a judge without reasoning; messages may fill its positions."""
    tokenizer = model_tokenizer.load_tokenizer(path)
    model = policy.load_policy(path, compute, device, trained=False)
    engine = transformers.make_sampler(
        model, tokenizer, max_batch=compute.max_batch, max_tokens=compute.max_tokens
    )
    positions = model.config.get_text_config(decoder=True).max_position_embeddings
    return PolicyJudge(
        engine=engine,
        tokenizer=tokenizer,
        option_ids=option_tokens(tokenizer, options),
        max_prompt_tokens=positions - count_cue_tokens(tokenizer, has_reasoning=False),
        reasoning_tokens=0,
    )
