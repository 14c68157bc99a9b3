"""What a transformers model finds likely right after a prompt."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from stages.algorithms.packing import token_budget_batches


@dataclass(frozen=True, kw_only=True)
class TransformersNextToken:
    """Reads prompts with `model`, in batches of at most `max_tokens` padded tokens."""

    model: PreTrainedModel
    pad_id: int
    max_tokens: int

    @torch.no_grad()
    def next_logprobs(
        self, prompts: Sequence[Sequence[int]], token_ids: Sequence[int]
    ) -> list[list[float]]:
        """See `stages.chooser.NextToken.next_logprobs`.

        Raises:
            ValueError: an empty prompt, or one longer than the model has positions.
        """
        if any(len(prompt) == 0 for prompt in prompts):
            raise ValueError("expected prompts of at least one token, found an empty one")
        longest = max((len(prompt) for prompt in prompts), default=0)
        positions = getattr(self.model.config, "max_position_embeddings", None)
        if positions is not None and longest > positions:
            raise ValueError(
                f"a prompt has {longest} tokens, the model {positions} positions: lower the "
                f"judge's max_prompt_tokens"
            )
        was_training = self.model.training
        self.model.eval()
        results: list[list[float]] = [[] for _ in prompts]
        for chosen in token_budget_batches([len(prompt) for prompt in prompts], self.max_tokens):
            batch = self._read([prompts[i] for i in chosen], token_ids)
            for i, logprobs in zip(chosen, batch, strict=True):
                results[i] = logprobs
        self.model.train(was_training)
        return results

    def _read(self, prompts: list[Sequence[int]], token_ids: Sequence[int]) -> list[list[float]]:
        device = self.model.device
        width = max(len(prompt) for prompt in prompts)
        # On the left, so that every prompt ends in the one column whose logits are computed.
        input_ids = torch.full((len(prompts), width), self.pad_id)
        attention = torch.zeros(len(prompts), width, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            input_ids[row, width - len(prompt) :] = torch.tensor(list(prompt))
            attention[row, width - len(prompt) :] = 1
        logits = self.model(
            input_ids=input_ids.to(device),
            attention_mask=attention.to(device),
            position_ids=(attention.cumsum(1) - 1).clamp(min=0).to(device),
            use_cache=False,
            logits_to_keep=1,
        ).logits[:, -1]
        return logits.float().log_softmax(-1)[:, list(token_ids)].tolist()
