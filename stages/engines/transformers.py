"""Sampler on a transformers model, on any device: the default engine.

Each prompt is read once and its key/value cache copied for its samples; finished rows leave the
batch. Token t of sample j is drawn by inverse transform sampling with the t-th number of a Philox
stream keyed by (request seed, j): so a completion does not depend on batching, order or resume.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import meter
from stages.algorithms.packing import token_budget_batches
from stages.engines import growing_cache
from stages.engines.growing_cache import GrowingCache
from stages.models import rope_limit
from stages.models.batch import eval_no_grad, pad_left
from stages.models.model_tokenizer import end_ids, pad_id
from stages.sampler import Sample, check_requests, token_limits
from stages.seeding import derive_seed

COMPACT_SHARE = 0.25
"""Share of finished rows in a batch from which they are dropped, which copies the cache."""


@dataclass(frozen=True, kw_only=True)
class TransformersSampler:
    """Sampler of `model` with its weights at the time of the call."""

    model: PreTrainedModel
    eos_ids: frozenset[int]
    """Ends of a sequence or of a turn: each of them ends a completion."""
    pad_id: int
    max_batch: int
    """Sequences decoded side by side."""
    max_tokens: int = 0
    """Padded tokens that `next_logprobs` reads at a time (one prompt at least)."""
    check_every: int = 1
    """Tokens between two checks for finished rows; a check makes a GPU wait."""

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        *,
        num_samples: int,
        temperature: float,
        max_new_tokens: int | Sequence[int],
        break_after: frozenset[int] = frozenset(),
    ) -> list[list[Sample]]:
        """See `stages.sampler.Sampler.sample`; refuses more tokens than the model has positions."""
        limits = token_limits(max_new_tokens, prompts)
        check_requests(prompts, limits, self._num_positions(), num_samples, temperature)
        # Longest first: an out-of-memory error comes at once, and batches pad little.
        order = sorted(range(len(prompts)), key=lambda i: (-len(prompts[i]), i))
        per_batch = max(1, self.max_batch // num_samples)
        results: list[list[Sample]] = [[] for _ in prompts]
        for start in range(0, len(order), per_batch):
            numbers = order[start : start + per_batch]
            requests = [(prompts[i], seeds[i], limits[i]) for i in numbers]
            with eval_no_grad(self.model):
                batch = self._decode(requests, num_samples, temperature, break_after)
            for i, samples in zip(numbers, batch, strict=True):
                results[i] = samples
        return results

    def next_logprobs(
        self, prompts: Sequence[Sequence[int]], token_ids: Sequence[int]
    ) -> list[list[float]]:
        """See `stages.sampler.Engine.next_logprobs`; refuses what `sample` refuses."""
        check_requests(prompts, token_limits(0, prompts), self._num_positions())
        results: list[list[float]] = [[] for _ in prompts]
        for numbers in token_budget_batches([*map(len, prompts)], self.max_tokens):
            inputs = pad_left([prompts[i] for i in numbers], self.pad_id, self.model.device)
            with eval_no_grad(self.model):
                logits = self.model(**inputs, use_cache=False, logits_to_keep=1).logits[:, -1]
            rows = logits.float().log_softmax(-1)[:, list(token_ids)].tolist()
            for i, logprobs in zip(numbers, rows, strict=True):
                results[i] = logprobs
            meter.COUNTS["messages"] += len(numbers)
        return results

    def close(self) -> None:
        """See `stages.sampler.Engine.close`: the caller holds the model."""

    def _num_positions(self) -> int | None:
        config = self.model.config
        return rope_limit.get_rope_limit(config) or getattr(config, "max_position_embeddings", None)

    def _decode(
        self,
        requests: Sequence[tuple[Sequence[int], int, int]],
        num_samples: int,
        temperature: float,
        break_after: frozenset[int],
    ) -> list[list[Sample]]:
        """Samples of prompts, each with its seed and limit, decoded side by side."""
        prompts, seeds, limits = map(list, zip(*requests, strict=True))
        device, longest = self.model.device, max(limits)
        num_rows = len(prompts) * num_samples
        inputs = pad_left(prompts, self.pad_id, device)
        attention, width = inputs["attention_mask"], inputs["input_ids"].shape[1]
        cache = GrowingCache(self.model.config.num_hidden_layers, width + longest)
        output = self.model(**inputs, past_key_values=cache, logits_to_keep=1)
        rows = torch.arange(len(prompts), device=device).repeat_interleave(num_samples)
        if num_samples > 1:
            cache.select(rows)
        logits = output.logits[rows, -1]
        room = attention.new_ones(num_rows, longest)
        attention = torch.cat([attention[rows], room], dim=1)
        position = attention[:, :width].sum(1)
        uniforms = _uniforms(seeds, num_samples, longest).to(device) if temperature > 0 else None
        ends = torch.tensor(sorted(self.eos_ids | break_after), dtype=torch.long, device=device)
        tokens = torch.zeros(num_rows, longest, dtype=torch.long, device=device)
        logprobs = torch.zeros(num_rows, longest, device=device)
        row_limits = torch.tensor(limits, device=device).repeat_interleave(num_samples)
        active = torch.arange(num_rows, device=device)  # original row of each in the batch
        stopped = torch.zeros(num_rows, dtype=torch.bool, device=device)  # of those
        for t in range(longest):
            uniform = None if uniforms is None else uniforms[active, t]
            token, logprobs[active, t] = sample_tokens(logits, temperature, uniform)
            tokens[active, t] = token
            stopped = stopped | torch.isin(token, ends) | (row_limits[active] <= t + 1)
            if t + 1 == longest:
                break
            if (t + 1) % self.check_every == 0:
                if stopped.all():
                    break
                if stopped.float().mean() > COMPACT_SHARE:
                    keep = (~stopped).nonzero().squeeze(1)
                    meter.COUNTS["completions"] += len(active) - len(keep)
                    cache.select(keep)
                    token, attention, position = token[keep], attention[keep], position[keep]
                    active, stopped = active[keep], stopped[keep]
            logits = self.model(
                input_ids=token[:, None],
                attention_mask=attention[:, : width + t + 1],
                position_ids=position[:, None],
                past_key_values=cache,
            ).logits[:, -1]
            position = position + 1
        meter.COUNTS["completions"] += len(active)
        samples = _cut_samples(tokens, logprobs, row_limits, ends, self.eos_ids)
        return [samples[i : i + num_samples] for i in range(0, num_rows, num_samples)]


def _cut_samples(
    tokens: Int[Tensor, "row token"],
    logprobs: Float[Tensor, "row token"],
    limits: Int[Tensor, " row"],
    ends: Int[Tensor, " end"],
    eos_ids: frozenset[int],
) -> list[Sample]:
    """Sample of each row: its tokens up to the first one of `ends`, or to its limit."""
    within = torch.arange(tokens.shape[1], device=tokens.device) < limits[:, None]
    at_ends = (torch.isin(tokens, ends) & within).cpu().numpy()
    stopped = np.logical_or.reduce(at_ends, axis=1)
    lengths = np.where(stopped, at_ends.argmax(1) + 1, limits.cpu().numpy())
    samples, rows = [], zip(tokens.cpu().numpy(), logprobs.cpu().numpy(), strict=True)
    for (ids, row), length, is_stopped in zip(rows, lengths, stopped, strict=True):
        reason = "length" if not is_stopped else "stop" if ids[length - 1] in eos_ids else "step"
        token_ids, row_logprobs = ids[:length].tolist(), row[:length].tolist()
        samples.append(Sample(token_ids=token_ids, logprobs=row_logprobs, finish_reason=reason))
    return samples


def make_sampler(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_batch: int,
    max_tokens: int = 0,
) -> TransformersSampler:
    """Sampler of a model, whose current weights it always uses."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    eos = configured if isinstance(configured, list) else [configured]
    growing_cache.check_cache(model)
    return TransformersSampler(
        model=model,
        eos_ids=end_ids(tokenizer) | {i for i in eos if isinstance(i, int)},
        pad_id=pad_id(tokenizer),
        max_batch=max_batch,
        max_tokens=max_tokens,
        check_every=16 if model.device.type == "cuda" else 1,
    )


def sample_tokens(
    logits: Float[Tensor, "batch vocab"],
    temperature: float,
    uniform: Float[Tensor, " batch"] | None,
) -> tuple[Int[Tensor, " batch"], Float[Tensor, " batch"]]:
    """A token of each row and its log p, by inverse transform sampling (temperature 0: greedy).

    The token is the first whose cumulative probability exceeds u; `uniform` is in [0, 1).
    So a token of probability 0 is never drawn.
    """
    logits = logits.float()
    if temperature == 0:
        token = logits.argmax(-1)
    else:
        assert uniform is not None
        logits = logits / temperature
        probabilities = logits.softmax(-1)
        # On CUDA torch refuses to sum floats cumulatively in deterministic mode, since their order
        # is not fixed.
        cuda = probabilities.is_cuda
        cumulative = fixed_point_cumulative(probabilities) if cuda else probabilities.cumsum(-1)
        total = cumulative[:, -1:]
        # The total is 1 up to rounding: scaling u by it, and staying below it where the product
        # rounds up, keeps the draw inside the vocabulary.
        threshold = uniform[:, None].to(cumulative.dtype) * total
        threshold = torch.minimum(threshold, torch.nextafter(total, torch.zeros_like(total)))
        token = torch.searchsorted(cumulative, threshold, right=True).squeeze(-1)
    token_logits = logits.gather(-1, token[:, None]).squeeze(-1)
    return token, token_logits - logits.logsumexp(-1)


def fixed_point_cumulative(
    probabilities: Float[Tensor, "batch vocab"],
) -> Float[Tensor, "batch vocab"]:
    """Cumulative sums in units of 2^-40, exact in any order and finer than float32, as float64."""
    return (probabilities * 2.0**40).long().cumsum(-1).double()


def _uniforms(seeds: list[int], num_samples: int, length: int) -> Float[Tensor, "batch {length}"]:
    """Numbers in [0, 1): row i * num_samples + j is the stream (seeds[i], j)."""
    keys = [derive_seed(seed, j) for seed in seeds for j in range(num_samples)]
    rows = [np.random.Generator(np.random.Philox(key=key)).random(length) for key in keys]
    return torch.from_numpy(np.stack(rows))
