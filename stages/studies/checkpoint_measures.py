"""Measure a policy on its way: what it earns, by truth and by proxies, and how far it has gone.

Each problem's samples are drawn once; what a model has to read is read once for each distinct
completion, and counted as often as it was drawn.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from transformers import PreTrainedModel

from stages.algorithms import kl
from stages.algorithms.repetition import repeated_share
from stages.algorithms.statistics.intervals import bootstrap_means
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
from stages.studies.markdown import named


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointResult:
    """One row of `data/studies/checkpoints/<run>/rows/<seed>/problems.jsonl`.

    Means over the problem's samples, whose random streams are the same at every step.
    """

    step: int
    """Training steps taken: 0 for the start, the last for the policy that the run wrote."""
    id: str
    """The problem's id."""
    correct: float
    """Share of the samples whose final answer is right: the true reward."""
    reward_model: float | None
    """Mean score by the single reward model; null where there is none."""
    ensemble: float | None
    """Mean score by the ensemble, its members' scores made one as its preset says."""
    ensemble_std: float | None
    """Mean over the samples of the standard deviation between the members' scores."""
    kl_k1: float
    """log(policy / reference), summed over a completion's tokens: nats, may be negative."""
    kl_k3: float
    """The estimator k3 of each token, summed over a completion's tokens: nats."""
    tokens: float
    """Tokens of a completion."""
    entropy: float
    """Of the policy's next-token distribution, over all tokens of the samples: nats a token."""
    truncated: float
    """Share of the samples cut at the length limit."""
    repetition: float
    """Share of a completion's runs of four tokens that it has said before."""
    num_distinct: int
    """Different completions among the samples: only these were scored."""


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


QUANTITIES = (
    "correct", "reward_model", "ensemble", "ensemble_std", "kl_k1", "kl_k3", "tokens", "entropy",
    "truncated", "repetition",
)  # fmt: skip
"""Fields of a row that are averaged over problems."""
PAIRED = ("correct", "reward_model", "ensemble")
"""Those whose difference from the start, paired by problem, is told too."""


def table(rows: Sequence[CheckpointResult]) -> dict[int, list[CheckpointResult]]:
    """Step -> its rows, the same problems in the same order at every step.

    Raises:
        ValueError: there is no step 0, or the steps do not have the same problems.
    """
    found: dict[int, list[CheckpointResult]] = {}
    for row in rows:
        found.setdefault(row.step, []).append(row)
    ids = {step: [row.id for row in one] for step, one in found.items()}
    if 0 not in found or any(one != ids[0] for one in ids.values()):
        raise ValueError(
            f"expected rows of step 0 and of the same problems at every step, found steps "
            f"{sorted(found)} with {[len(one) for one in ids.values()]} problems. Rerun "
            f"the study checkpoints, which writes them."
        )
    return {step: found[step] for step in sorted(found)}


def column(rows: Sequence[CheckpointResult], name: str) -> Float[np.ndarray, " problem"] | None:
    """A quantity of each problem; None where nothing measured it."""
    values = [getattr(row, name) for row in rows]
    return None if None in values else np.array(values, dtype=np.float64)


def summarise(
    rows: Sequence[CheckpointResult], *, num_resamples: int, confidence: float, seed: int
) -> dict[str, Any]:
    """`steps`: of each, `{quantity: {value, low, high}}`; `best_step`, by accuracy.

    `<quantity>_gain` is the paired difference from the start; null where nothing scores. Of
    steps that are equally accurate the first is the best: it is nearest to the start. Its own
    accuracy is the largest of several noisy numbers, so report another split's.
    """
    by_step = table(rows)
    steps = {
        str(step): _means(one, by_step[0], num_resamples, confidence, seed)
        for step, one in by_step.items()
    }
    best = max(by_step, key=lambda step: (steps[str(step)]["correct"]["value"], -step))
    return {"num_problems": len(by_step[0]), "best_step": best, "steps": steps}


def _means(
    rows: Sequence[CheckpointResult],
    start: Sequence[CheckpointResult],
    num_resamples: int,
    confidence: float,
    seed: int,
) -> dict[str, Any]:
    columns = {name: column(rows, name) for name in QUANTITIES}
    for name in PAIRED:
        now, before = columns[name], column(start, name)
        columns[f"{name}_gain"] = None if now is None or before is None else now - before
    measured = {name: values for name, values in columns.items() if values is not None}
    found = bootstrap_means(
        np.stack(list(measured.values()), axis=1),
        num_resamples=num_resamples,
        confidence=confidence,
        seed=seed,
    )
    intervals = {
        name: named(*(float(bound) for bound in bounds))
        for name, *bounds in zip(measured, *found, strict=True)
    }
    return {name: intervals.get(name) for name in columns}
