"""A local causal language model as a judge, whichever engine it runs on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.algorithms.judge_readings import option_probabilities
from stages.chooser import Choice, NextToken
from stages.models import model_tokenizer, policy, prompting
from stages.models.device import ComputeConfig
from stages.models.messages import encoder
from stages.models.next_token import TransformersNextToken
from stages.models.option_tokens import option_tokens
from stages.rewards.feedback import reasoning
from stages.sampler import Sampler


@dataclass(frozen=True, kw_only=True)
class PolicyChooser:
    """Reads the next-token distribution at the end of the rendered message."""

    reader: NextToken
    sampler: Sampler | None
    """Writes the reasoning; the same model. None: there is none to write."""
    tokenizer: PreTrainedTokenizerBase
    option_ids: list[list[int]]
    """Of each option, the tokens that spell it (`models/option_tokens`)."""
    max_prompt_tokens: int
    """A longer message is not read."""
    reasoning_tokens: int
    """At most so many, greedily, before the choice; 0: none."""

    def choose(self, messages: Sequence[str]) -> list[Choice | None]:
        """See `stages.chooser.Chooser.choose`."""
        request = reasoning.REQUEST if self.reasoning_tokens else ""
        prompts = encoder(self.tokenizer)([message + request for message in messages])
        fitting = [i for i, ids in enumerate(prompts) if len(ids) <= self.max_prompt_tokens]
        if not fitting:
            return [None] * len(prompts)
        thoughts = self._reason([prompts[i] for i in fitting])
        cue = prompting.ids([reasoning.CUE], self.tokenizer)[0] if self.reasoning_tokens else []
        read = [[*prompts[i], *thought, *cue] for i, thought in zip(fitting, thoughts, strict=True)]
        flat = [token_id for ids in self.option_ids for token_id in ids]
        rows = self.reader.next_logprobs(read, flat)
        choices: list[Choice | None] = [None] * len(prompts)
        for i, thought, row in zip(fitting, thoughts, rows, strict=True):
            logprobs = iter(row)
            variants = [[next(logprobs) for _ in option] for option in self.option_ids]
            probabilities, mass = option_probabilities(variants)
            choices[i] = Choice(
                probabilities=probabilities,
                mass=mass,
                num_prompt_tokens=len(prompts[i]),
                num_generated_tokens=len(thought),
            )
        return choices

    def _reason(self, prompts: list[list[int]]) -> list[list[int]]:
        """What the model writes before it chooses, up to whichever token ends it."""
        if not self.reasoning_tokens:
            return [[] for _ in prompts]
        assert self.sampler is not None, "nothing to reason with"
        drawn = self.sampler.sample(
            prompts,
            [0] * len(prompts),
            num_samples=1,
            temperature=0.0,
            max_new_tokens=self.reasoning_tokens,
        )
        # The engine knows all tokens that end a sequence, the tokenizer only one of them.
        return [
            sample.token_ids[:-1] if sample.finish_reason == "stop" else sample.token_ids
            for (sample,) in drawn
        ]


def load(
    path: Path, options: Sequence[str], compute: ComputeConfig, device: torch.device
) -> PolicyChooser:
    """The policy at `path` as a judge that reads what fits its positions, and does not reason.

    Raises:
        ValueError: an option that no token of it spells.
    """
    tokenizer = model_tokenizer.load(path)
    model = policy.load(path, compute, device)
    reader = TransformersNextToken(
        model=model, pad_id=model_tokenizer.pad_id(tokenizer), max_tokens=compute.max_tokens
    )
    return PolicyChooser(
        reader=reader,
        sampler=None,
        tokenizer=tokenizer,
        option_ids=option_tokens(tokenizer, options),
        max_prompt_tokens=model.config.max_position_embeddings,
        reasoning_tokens=0,
    )
