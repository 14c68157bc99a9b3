"""Measure a policy on its way: what it earns, by truth and by proxies, and how far it has gone.

Each problem's samples are drawn once; what a model has to read is read once for each distinct
completion, and counted as often as it was drawn.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from transformers import PreTrainedModel

from stages.algorithms import kl
from stages.algorithms.repetition import repeated_share
from stages.loops.candidates import CandidatesConfig
from stages.models import ensemble
from stages.models.batch import Batch, Group, micro_batches, split_group
from stages.models.device import ComputeConfig
from stages.models.ensemble import Scores
from stages.models.policy import completion_logprobs
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import answer_checker, reward_file
from stages.rows import DATA
from stages.studies.checkpoint_results import CheckpointResult

Scorer = Callable[[Batch], Scores]
Scorers = tuple[Scorer | None, Scorer | None]
"""One reward model and an ensemble of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judges:
    """All in eval mode."""

    reference: PreTrainedModel
    """What the divergence is measured from."""
    reward_model: Scorer | None
    ensemble: Scorer | None


def scorers(reward: str, seed: int, compute: ComputeConfig, device: torch.device) -> Scorers:
    """What a row of `rewards` scores with: its model, and where it has several, all of them.

    One model of an ensemble, the first, stands for what a single one would find.
    """
    folder = DATA / "rewards" / reward
    aggregate, path = reward_file.read(folder).aggregate, reward_file.model(folder, seed)
    folders = ensemble.folders(path)
    single = ensemble.load(folders[0], aggregate, compute, device)
    return single, ensemble.load(path, aggregate, compute, device) if len(folders) > 1 else None


NGRAM = 4
"""Tokens in the runs whose repetition is counted."""
DIGITS = 6
"""Decimals kept of a number: those below are rounding."""
Pool = tuple[Prompt, Sequence[Completion]]


class CheckpointsConfig(CandidatesConfig):
    """How policies along a run are sampled, and how sure we are of what they do."""

    num_bootstrap: int = Field(ge=100)
    """Resamples of the problems for each interval."""
    confidence: float = Field(gt=0, lt=1)
    """Coverage of the intervals."""


@torch.no_grad()
def measure(
    model: PreTrainedModel,
    judges: Judges,
    pools: Sequence[Pool],
    compute: ComputeConfig,
    pad_id: int,
    *,
    step: int,
    temperature: float,
) -> list[CheckpointResult]:
    """What the policy did on each problem, from its own samples.

    The divergence from the reference is estimated by k1 and k3 (`algorithms/kl`), each summed
    over a completion's tokens; both are unbiased for the KL of whole completions drawn at
    `temperature`, a completion cut at the limit being one of the outcomes.

    Args:
        model: the policy that drew the samples.
        judges: scores and divergence.
        pools: prompts with the samples drawn for them.
        compute: sizes of micro-batches.
        pad_id: fills the right of shorter rows.
        step: how many training steps the policy has taken.
        temperature: at which the samples were drawn.
    """
    model.eval()
    counts = [Counter(tuple(row.completion_ids) for row in rows) for _, rows in pools]
    groups: list[Group] = []
    start = 0
    for (prompt, _), count in zip(pools, counts, strict=True):
        numbers = range(start, start + len(count))
        group = Group(prompt_ids=prompt.prompt_ids, completions=list(count), indices=numbers)
        groups += split_group(group, compute.row_tokens)
        start += len(count)
    table = torch.zeros(start, len(COLUMNS))
    for batch in micro_batches(groups, compute, pad_id, model.device):
        table[batch.indices] = _read(model, judges, batch, temperature).cpu()
    results, start = [], 0
    for pool, count in zip(pools, counts, strict=True):
        drawn = torch.tensor([float(number) for number in count.values()])
        means = (table[start : start + len(count)] * drawn[:, None]).sum(0) / drawn.sum()
        results.append(_result(pool, dict(zip(COLUMNS, means.tolist(), strict=True)), judges, step))
        start += len(count)
    return results


COLUMNS = ("kl_k1", "kl_k3", "entropy_sum", "reward_model", "ensemble", "ensemble_std")


def _read(
    model: PreTrainedModel, judges: Judges, batch: Batch, temperature: float
) -> Float[Tensor, "batch column"]:
    """`COLUMNS` of each completion; 0 where nobody scores."""
    logprobs, entropies = completion_logprobs(model, batch, temperature=temperature)
    ref_logprobs, _ = completion_logprobs(judges.reference, batch, temperature=temperature)
    nothing = torch.zeros_like(logprobs[:, 0])
    none = Scores(values=nothing, disagreement=nothing)
    single = judges.reward_model(batch) if judges.reward_model else none
    several = judges.ensemble(batch) if judges.ensemble else none
    # Outside the mask both log-probs are 0, and so are the estimates.
    columns = (
        kl.k1(logprobs, ref_logprobs).sum(1),
        kl.k3(logprobs, ref_logprobs).sum(1),
        entropies.sum(1),
        single.values,
        several.values,
        several.disagreement,
    )
    return torch.stack([column.float() for column in columns], dim=1)


def _result(pool: Pool, means: dict[str, float], judges: Judges, step: int) -> CheckpointResult:
    prompt, rows = pool
    # Not one verdict a distinct text: two lists of tokens may spell the same one.
    texts = Counter(row.completion for row in rows)
    right = sum(
        number for text, number in texts.items() if answer_checker.is_correct(text, prompt.answer)
    )
    tokens = sum(len(row.completion_ids) for row in rows) / len(rows)
    single, several = judges.reward_model is not None, judges.ensemble is not None
    return CheckpointResult(
        step=step,
        id=prompt.id,
        correct=round(right / len(rows), DIGITS),
        reward_model=round(means["reward_model"], DIGITS) if single else None,
        ensemble=round(means["ensemble"], DIGITS) if several else None,
        ensemble_std=round(means["ensemble_std"], DIGITS) if several else None,
        kl_k1=round(means["kl_k1"], DIGITS),
        kl_k3=round(means["kl_k3"], DIGITS),
        tokens=round(tokens, DIGITS),
        entropy=round(means["entropy_sum"] / tokens, DIGITS),
        truncated=round(sum(row.finish_reason == "length" for row in rows) / len(rows), DIGITS),
        repetition=round(
            sum(repeated_share(row.completion_ids, NGRAM) for row in rows) / len(rows), DIGITS
        ),
        num_distinct=len({tuple(row.completion_ids) for row in rows}),
    )
