"""Process reward model: a transformer with a score for each reasoning step of a solution.

It is an `AutoModelForTokenClassification` with the labels 0 wrong and 1 right, so that other
tools can load it. Its input is built from token ids, step by step, never from joined text, in which
the end of a step may fall inside a token:

    prompt + step 1 + STEP + step 2 + STEP + ...

STEP is one special token; the score of a step, P(right), is the softmax over the two labels at the
STEP that follows it. The end-of-sequence token of a sampled solution is part of its last step, so
the model sees how it ended. The model's config has STEP's id and the text that ends a step
(`step_token_id`, `step_separator`): scoring needs nothing but its folder. A STEP that a policy
writes into its text is a token like any other and gets no score.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AutoModelForTokenClassification, PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import model_tokenizer, policy, sharding
from stages.models.batch import Batch, Group, model_batches, split_group
from stages.models.device import COMPUTE, ComputeConfig
from stages.models.forward_check import compute_hidden_states
from stages.models.row_policy import HEADS
from stages.records.steps import split_steps

LABELS = {0: "wrong", 1: "right"}
NEW_HEAD_WEIGHTS = frozenset(f"{head}.{name}" for head in HEADS for name in ("weight", "bias"))
AUTO = "auto"
FREE_TOKEN_WORDS = ("step", "extra", "reserved", "unused")
"""Words in the name of a special token that is free to use, the best first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizedSolution:
    """Prompt and reasoning steps as token ids, without STEP."""

    prompt_ids: Sequence[int]
    steps: Sequence[Sequence[int]]


def step_token_id(tokenizer: PreTrainedTokenizerBase, step_token: str) -> int:
    """Id of STEP, a special token without another use.

    That is: not the begin, end, padding or unknown token, and not in the chat template. `auto`: the
    one with a name that says it is free (`<|reserved_special_token_0|>` of Llama 3), else the first
    (`<|object_ref_start|>` of Qwen 2.5), else, as with GPT-2 and Llama 2, the end token.
    """
    used = (tokenizer.eos_token, tokenizer.pad_token, tokenizer.bos_token, tokenizer.unk_token)
    template = str(tokenizer.chat_template or "")
    free = {
        token.content: token_id
        for token_id, token in sorted(tokenizer.added_tokens_decoder.items())
        if token.special and token.content not in used and token.content not in template
    }
    ranked = sorted(free, key=lambda token: [word not in token for word in FREE_TOKEN_WORDS])
    if step_token == AUTO:
        return free[ranked[0]] if ranked else model_tokenizer.eos_id(tokenizer)
    if step_token not in free:
        raise ValueError(
            f"step_token {step_token!r}: expected a special token of the tokenizer that nothing "
            f"else uses, found the tokens {tokenizer.encode(step_token, add_special_tokens=False)}."
            f" Set step_token of the preset to `auto`, or to one that is free: {ranked[:8]}."
        )
    return free[step_token]


def init_process_model(
    path: str | Path,
    step_id: int,
    compute: ComputeConfig,
    device: torch.device,
    *,
    separator: str = "\n",
) -> PreTrainedModel:
    """The body of the policy at `path` under a new head of two labels.

    The head's weights are 0, so every step starts at P(right) = 1/2, whatever the seed. `separator`
    ends the steps of the training data, and splits sampled solutions into steps.
    """
    model = policy.load_pretrained(
        AutoModelForTokenClassification, path, new=NEW_HEAD_WEIGHTS, num_labels=2
    )
    for parameter in get_head(model).parameters():
        nn.init.zeros_(parameter)
    model.config.step_token_id = step_id
    model.config.step_separator = separator
    model.config.id2label = dict(LABELS)
    model.config.label2id = {name: label for label, name in LABELS.items()}
    return policy.prepare_model(model, compute, device)


def load_process_model(
    path: str | Path, compute: ComputeConfig, device: torch.device
) -> PreTrainedModel:
    """The process reward model at `path`, frozen; a ValueError for any other model."""
    model = policy.load_pretrained(AutoModelForTokenClassification, path, new=frozenset())
    labels = model.config.id2label
    step_id = getattr(model.config, "step_token_id", None)
    separator = getattr(model.config, "step_separator", None)
    if labels != LABELS or not isinstance(step_id, int) or not separator:
        raise ValueError(
            f"{path}: expected the labels {LABELS}, a `step_token_id` and a `step_separator` in "
            f"config.json, found {labels}, {step_id!r} and {separator!r}: name a "
            f"model that reward_process wrote, or write all three into its config."
        )
    return policy.prepare_model(model, compute, device, trained=False)


def get_head(model: nn.Module) -> nn.Module:
    """The layer from a hidden state to two logits."""
    # Under LoRA, which trains it in full, it is wrapped, and called as before.
    return next(getattr(model, name) for name in HEADS if hasattr(model, name))


class ProcessHead(nn.Module):
    """Process reward model that scores the steps of batches of solutions."""

    def __init__(
        self, model: PreTrainedModel, compute: ComputeConfig = COMPUTE, pad_id: int = 0
    ) -> None:
        """`model` is from `load_process_model` or `init_process_model`."""
        super().__init__()
        self.model, self.compute, self.pad_id = model, compute, pad_id

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.model.device

    @property
    def separator(self) -> str:
        """Text that ends a step."""
        return self.model.config.step_separator

    def forward(self, batch: Batch, ends: Sequence[Sequence[int]]) -> Float[Tensor, "step 2"]:
        """Two logits at each STEP, in float32, in the order of the batch's solutions.

        `batch` is from `solution_groups`; `ends`: `step_end_indices` of each of its solutions.
        """
        predicted_at = torch.zeros_like(batch.token_ids[batch.local])
        predicted_at = predicted_at.masked_scatter(batch.mask[batch.local], batch.predict_index)
        local_ends = zip(predicted_at, ends[batch.local], strict=True)
        indices = [row[list(solution_ends)] for row, solution_ends in local_ends]
        # A STEP is no completion's first token, so it stands right after what predicts it.
        positions = torch.cat([batch.predict_index[:0], *indices]) + 1
        hidden = compute_hidden_states(self.model, batch)[positions]
        logits = policy.apply_head(get_head(self.model), hidden)
        return sharding.gather_completions(logits, [*map(len, ends)], batch.local)


def solution_groups(
    model: ProcessHead, solutions: Sequence[TokenizedSolution], numbers: Sequence[int]
) -> list[Group]:
    """The solutions with these numbers, STEP after each step; those of a prompt share its copy.

    Nothing is truncated, since that would lose labels: a ValueError if a solution is longer than
    the model's positions.
    """
    members: dict[tuple[int, ...], list[int]] = {}
    for number in numbers:
        members.setdefault(tuple(solutions[number].prompt_ids), []).append(number)
    config = model.model.config
    step_id = int(config.step_token_id)
    max_length = config.get_text_config(decoder=True).max_position_embeddings
    groups = []
    for prompt_ids, indices in members.items():
        completions = [
            [token for step in solutions[i].steps for token in (*step, step_id)] for i in indices
        ]
        length = len(prompt_ids) + max(len(ids) for ids in completions)
        if length > max_length:
            raise ValueError(
                f"a solution has {length} tokens with its prompt and step tokens, the model "
                f"{max_length} positions: leave out such rows (among {indices}), or take a model "
                f"with more (model.tiny.max_length for the embedded one)."
            )
        group = Group(prompt_ids=prompt_ids, completions=completions, indices=indices)
        groups += split_group(group, model.compute.row_tokens)
    return groups


def step_end_indices(steps: Sequence[Sequence[int]]) -> list[int]:
    """Index of each STEP in the solution's tokens, STEP tokens included."""
    return [end - 1 for end in accumulate(len(step) + 1 for step in steps)]


@torch.no_grad()
def score_steps(model: ProcessHead, solutions: Sequence[TokenizedSolution]) -> list[list[float]]:
    """P(right) after each step of each solution, in eval mode; a ValueError if not finite."""
    model.eval()
    scores: list[list[float]] = [[] for _ in solutions]
    groups = solution_groups(model, solutions, range(len(solutions)))
    for batch in model_batches(model, groups):
        ends = [step_end_indices(solutions[i].steps) for i in batch.indices]
        probabilities = model(batch, ends).softmax(-1)[:, 1].cpu()
        parts = probabilities.split([*map(len, ends)])
        for i, solution_scores in zip(batch.indices, parts, strict=True):
            scores[i] = solution_scores.tolist()
            # A minimum over steps may drop NaN, depending on its position: a reward of 0.
            if not solution_scores.isfinite().all():
                raise ValueError(
                    f"solution {i}: expected finite scores of its steps, found {scores[i]}: the "
                    f"process model's weights or activations are not finite. Train it with a lower "
                    f"optim.learning_rate of the preset, or compute in another precision "
                    f"(compute in params.yaml)."
                )
    return scores


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessScorer:
    """Process reward model with its tokenizer's decoding, to score sampled completions."""

    model: ProcessHead
    decode: Callable[[Sequence[int]], str]

    def split(self, completion_ids: Sequence[int]) -> list[list[int]]:
        """Steps of a completion, split as in the training data of the model."""
        return split_steps(completion_ids, self.decode, self.model.separator)

    def __call__(self, solutions: Sequence[TokenizedSolution]) -> list[list[float]]:
        """P(right so far) after each step, in eval mode."""
        return score_steps(self.model, solutions)

    def num_positions(self, solutions: Sequence[TokenizedSolution]) -> int:
        """Number of input tokens for these solutions, step tokens included."""
        groups = solution_groups(self.model, solutions, range(len(solutions)))
        return sum(group.length() for group in groups)

    def find_separator_tokens(self, num_tokens: int) -> frozenset[int]:
        """Ids below `num_tokens` of the tokens with the separator in their text.

        A ValueError if there is none: then no single token shows that a step ends.
        """
        separator = self.model.separator
        ids = frozenset(i for i in range(num_tokens) if separator in self.decode([i]))
        if not ids:
            raise ValueError(
                f"no token of the tokenizer has the separator {separator!r} in its text, so "
                f"sampling cannot be broken off where a step ends: train the process model with a "
                f"separator that is one (of the preset), such as a newline."
            )
        return ids


def load_process_scorer(path: Path, compute: ComputeConfig, device: torch.device) -> ProcessScorer:
    """The process reward model at `path`, with its own tokenizer."""
    tokenizer = model_tokenizer.load_tokenizer(path)
    pad_id, model = model_tokenizer.pad_id(tokenizer), load_process_model(path, compute, device)
    return ProcessScorer(
        model=ProcessHead(model, compute, pad_id), decode=model_tokenizer.make_decode(tokenizer)
    )
