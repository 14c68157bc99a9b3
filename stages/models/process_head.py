"""A transformer that judges each step of a solution: the process reward model.

It is an `AutoModelForTokenClassification` with the labels 0 wrong and 1 right, so that other
tools read it. Its input is made of token ids, step by step, never of joined text, in which a
step's end may be no token of its own:

    prompt + step 1 + STEP + step 2 + STEP + ...

STEP is one special token; the score of a step, P(right), is the softmax over the two labels
at the STEP that follows it. The end-of-sequence token that a sampled solution ends with is
part of its last step and so stands before the last STEP: the model sees how a solution
ended. The model's config keeps STEP's id and the text that ends a step (`step_token_id`,
`step_separator`): its folder says all that scoring needs. Where steps end is known from the
steps themselves; a STEP that a policy writes into its own text is a token like any other and
gets no score.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AutoModelForTokenClassification, PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import policy
from stages.models.batch import Batch, Group, micro_batches, split_group
from stages.models.device import ComputeConfig
from stages.models.policy import hidden_states, prepare

LABELS = {0: "wrong", 1: "right"}
# What architectures call the head: `score` in Llama, Qwen and Mistral, `classifier` in GPT-2.
HEADS = ("score", "classifier")
NEW = frozenset(f"{head}.{name}" for head in HEADS for name in ("weight", "bias"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution:
    """A prompt and the steps of one answer, as token ids without STEP."""

    prompt_ids: Sequence[int]
    steps: Sequence[Sequence[int]]


def step_token_id(tokenizer: PreTrainedTokenizerBase, step_token: str) -> int:
    """The id of the token that is to follow each step.

    Raises:
        ValueError: it is not in the tokenizer, not one special token, or has another use.
    """
    special = [str(token) for token in tokenizer.all_special_tokens]
    others = (tokenizer.eos_token, tokenizer.pad_token, tokenizer.bos_token, tokenizer.unk_token)
    taken = {str(token) for token in others}
    free = [token for token in special if token not in taken]
    ids = tokenizer.encode(step_token, add_special_tokens=False)
    if step_token not in free or len(ids) != 1:
        raise ValueError(
            f"step_token {step_token!r} must be one special token of the tokenizer without another "
            f"use, found the tokens {ids}. Set step_token of the preset to "
            f"one of {free}, or add one to the tokenizer (additional_special_tokens)."
        )
    return ids[0]


def from_policy(
    path: str | Path,
    step_id: int,
    compute: ComputeConfig,
    device: torch.device,
    *,
    separator: str = "\n",
) -> PreTrainedModel:
    """The body of the policy at `path` under a new head of two labels that starts at zero.

    From zero every step starts at P(right) = 1/2, whatever the seed.

    Args:
        path: the policy's folder.
        step_id: see `step_token_id`.
        compute: precision.
        device: where it computes.
        separator: what ended the steps it is going to learn from; sampled completions that it
            scores are split by it.
    """
    model = policy.read_checkpoint(AutoModelForTokenClassification, path, new=NEW, num_labels=2)
    for parameter in head(model).parameters():
        nn.init.zeros_(parameter)
    model.config.step_token_id = step_id
    model.config.step_separator = separator
    model.config.id2label = dict(LABELS)
    model.config.label2id = {name: label for label, name in LABELS.items()}
    return prepare(model, compute, device)


def load(path: str | Path, compute: ComputeConfig, device: torch.device) -> PreTrainedModel:
    """The process reward model at `path`.

    Raises:
        ValueError: a token classifier with other labels, or one that does not say what follows
            a step and what ends it.
    """
    model = policy.read_checkpoint(AutoModelForTokenClassification, path, new=frozenset())
    found = [getattr(model.config, key, None) for key in ("step_token_id", "step_separator")]
    if model.config.id2label != LABELS or not isinstance(found[0], int) or not found[1]:
        raise ValueError(
            f"{path}: expected the labels {LABELS}, a `step_token_id` and a `step_separator` in "
            f"config.json, found {model.config.id2label}, {found[0]!r} and {found[1]!r}: it was "
            f"not written by reward_process. Name a model that was, or write all three into "
            f"its config."
        )
    return prepare(model, compute, device)


def head(model: nn.Module) -> nn.Module:
    """The layer that makes two logits of a hidden state."""
    # Trained whole under LoRA, it is wrapped, and called alike.
    return next(getattr(model, name) for name in HEADS if hasattr(model, name))


def groups(
    solutions: Sequence[Solution], numbers: Sequence[int], model: PreTrainedModel, row_tokens: int
) -> list[Group]:
    """The solutions with these numbers, STEP after each step; those of a prompt share its copy.

    Raises:
        ValueError: no step, an empty step, or more tokens than the model has positions:
            nothing is cut, since a cut label would be lost without a word.
    """
    members: dict[tuple[int, ...], list[int]] = {}
    for number in numbers:
        members.setdefault(tuple(solutions[number].prompt_ids), []).append(number)
    step_id, longest = int(model.config.step_token_id), model.config.max_position_embeddings
    found = []
    for prompt_ids, indices in members.items():
        completions = [_with_step_tokens(solutions[i], step_id, i) for i in indices]
        length = len(prompt_ids) + max(len(ids) for ids in completions)
        if length > longest:
            raise ValueError(
                f"a solution has {length} tokens with its prompt and step tokens, the model "
                f"{longest} positions: leave out such rows (none of {indices} is cut), or take a "
                f"model with more (model.tiny.max_length for the embedded one)."
            )
        group = Group(prompt_ids=prompt_ids, completions=completions, indices=indices)
        found += split_group(group, row_tokens)
    return found


def _with_step_tokens(solution: Solution, step_id: int, number: int) -> list[int]:
    if not solution.steps or not all(solution.steps):
        raise ValueError(
            f"solution {number}: expected at least one step and no empty one, found "
            f"{len(solution.steps)} of {[len(step) for step in solution.steps]} tokens"
        )
    return [token for step in solution.steps for token in (*step, step_id)]


def step_ends(steps: Sequence[Sequence[int]]) -> list[int]:
    """The place of each STEP among the solution's tokens, STEP tokens included."""
    return [end - 1 for end in accumulate(len(step) + 1 for step in steps)]


def step_logits(
    model: nn.Module, batch: Batch, ends: Sequence[Sequence[int]]
) -> Float[Tensor, "step 2"]:
    """The two logits at each STEP, in float32: of the batch's first solution, its second, ...

    Args:
        model: the process reward model.
        batch: of `groups`.
        ends: `step_ends` of each solution of the batch, in its order.
    """
    rows = torch.tensor([row for row, places in enumerate(ends) for _ in places])
    places = torch.tensor([place for row in ends for place in row])
    positions = _own_positions(batch)[rows.to(batch.mask.device), places.to(batch.mask.device)]
    hidden = hidden_states(model, batch)[positions]
    hidden = hidden if hidden.dtype == torch.float64 else hidden.float()
    with torch.autocast(hidden.device.type, enabled=False):
        return head(model)(hidden)


def _own_positions(batch: Batch) -> Int[Tensor, "batch token"]:
    """Where each completion token stands in the flattened input."""
    # A token stands where the next one is predicted.
    grid = torch.zeros_like(batch.token_ids).masked_scatter(batch.mask, batch.predict_index)
    grid = grid.roll(-1, dims=1)
    last = batch.mask.sum(1, keepdim=True) - 1
    return grid.scatter(1, last, batch.last_index[:, None])


@torch.no_grad()
def step_scores(
    model: PreTrainedModel, solutions: Sequence[Solution], compute: ComputeConfig, pad_id: int
) -> list[list[float]]:
    """P(right) of each step of each solution, in eval mode; nothing in `solutions` is changed.

    Raises:
        ValueError: as `groups`; a score that is not a finite number.
    """
    model.eval()
    found: list[list[float]] = [[] for _ in solutions]
    parts = groups(solutions, range(len(solutions)), model, compute.row_tokens)
    for batch in micro_batches(parts, compute, pad_id, model.device):
        ends = [step_ends(solutions[i].steps) for i in batch.indices]
        scores = step_logits(model, batch, ends).softmax(-1)[:, 1].cpu()
        for i, own in zip(batch.indices, scores.split([len(e) for e in ends]), strict=True):
            found[i] = own.tolist()
    for number, own in enumerate(found):
        # In a minimum NaN is lost or kept by its place: it would come out as a reward of 0.
        if not all(map(isfinite, own)):
            raise ValueError(
                f"solution {number}: expected finite scores of its steps, found {own}: the process "
                f"model's weights or activations are not finite. Train it with a lower "
                f"optim.learning_rate of the preset, or compute in another precision "
                f"(compute in params.yaml)."
            )
    return found
