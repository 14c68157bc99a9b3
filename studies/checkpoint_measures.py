"""Measures of intermediate policies: true reward, proxy rewards, distance from the start.

Each problem's samples are drawn once. Models read each distinct completion once; its measures count
as often as it was drawn. Then means over problems by step.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from stages.algorithms import kl
from stages.algorithms.length_and_repetition import repeated_share
from stages.algorithms.statistics.intervals import bootstrap_means
from stages.models import scalar_head
from stages.models.batch import Group, make_groups, model_batches
from stages.models.device import ComputeConfig
from stages.models.policy import Policy
from stages.models.scalar_head import Scores
from stages.records.metrics import DIGITS, with_interval
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import answer_checker, reward_file
from stages.rows import DATA

Scorer = Callable[[Sequence[Group]], Scores]
Scorers = tuple[Scorer | None, Scorer | None]
"""Scorers: one reward model and an ensemble."""
NGRAM = 4
"""Length of the n-grams whose repetition is counted."""
COLUMNS = ("kl_k1", "kl_k3", "entropy", "reward_model", "ensemble", "ensemble_std")
"""Model scores of each completion; the first three are sums over its tokens."""
PAIRED = ("correct", "reward_model", "ensemble")
"""Measures whose difference from the start, paired by problem, is reported, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointResult:
    """One row of `data/studies/checkpoints/<run>/rows/<seed>/problems.jsonl`.

    Means over the problem's samples, whose random streams are the same at every step.
    """

    step: int
    """Training steps taken: 0 for the start, the last for the policy that the run wrote."""
    id: str
    correct: float
    """Share of the samples whose final answer is right: the true reward."""
    reward_model: float | None
    """Mean score by the single reward model; null without one."""
    ensemble: float | None
    """Mean score by the ensemble, whose preset says how its members' scores become one."""
    ensemble_std: float | None
    """Mean over the samples of the standard deviation between the members' scores."""
    kl_k1: float
    """log(policy / reference), summed over a completion's tokens: nats, may be negative."""
    kl_k3: float
    """The estimator k3 of each token, summed over a completion's tokens: nats."""
    tokens: float
    """Tokens of a completion."""
    entropy: float
    """Entropy of the policy's next-token distribution, over all tokens of the samples: nats per
    token."""
    truncated: float
    """Share of the samples truncated at the length limit."""
    repetition: float
    """Share of a completion's 4-grams of tokens that occurred in it before."""
    num_distinct: int
    """Different completions among the samples: only these were scored."""


QUANTITIES = [field.name for field in fields(CheckpointResult)][2:-1]
"""Fields that are averaged over problems: all between the id and `num_distinct`."""


def load_scorers(reward: str, seed: int, compute: ComputeConfig, device: torch.device) -> Scorers:
    """Scorers of a row of `rewards`: its first model, and, if it has several, the ensemble.

    The first model of an ensemble stands for a single reward model.
    """
    folder = DATA / "rewards" / reward
    aggregate = reward_file.read_reward(folder).aggregate
    path = reward_file.model_path(folder, seed)
    folders = scalar_head.find_member_folders(path)
    single = scalar_head.load_ensemble(folders[0], aggregate, compute, device).score_groups
    if len(folders) == 1:
        return single, None
    return single, scalar_head.load_ensemble(path, aggregate, compute, device).score_groups


@torch.no_grad()
def measure_checkpoint(
    model: Policy, reference: Policy, judges: Scorers,
    pools: Sequence[tuple[Prompt, Sequence[Completion]]], *,
    step: int, temperature: float,
) -> list[CheckpointResult]:  # fmt: skip
    """Measures of the policy on each problem after `step` training steps, from its own samples.

    The divergence from the reference, in eval mode, is estimated by k1 and k3
    (`algorithms/kl`), each summed over a completion's tokens; both are unbiased for the KL of whole
    completions drawn at `temperature`, with a completion truncated at the limit as an outcome.
    """
    model.eval()
    reward_model, several = judges
    counts = [Counter(tuple(row.completion_ids) for row in rows) for _, rows in pools]
    prompts = [prompt.prompt_ids for prompt, _ in pools]
    groups = make_groups(zip(prompts, map(list, counts), strict=True), model.compute.row_tokens)
    sizes = [len(count) for count in counts]
    table = torch.zeros(sum(sizes), len(COLUMNS))
    for batch in model_batches(model, groups):
        logprobs, entropies = model(batch, temperature=temperature)
        ref_logprobs = reference(batch, temperature=temperature).logprobs
        # Outside the mask both log-probs are 0, and so are the estimates.
        divergences = kl.k1(logprobs, ref_logprobs), kl.k3(logprobs, ref_logprobs)
        sums = torch.stack([values.sum(1).float() for values in (*divergences, entropies)], dim=1)
        table[batch.indices, :3] = sums.cpu()
    if reward_model:
        table[:, 3] = reward_model(groups).values
    if several:
        scores = several(groups)
        table[:, 4], table[:, 5] = scores.values, scores.disagreement
    results = []
    for (prompt, rows), count, row_means in zip(pools, counts, table.split(sizes), strict=True):
        multiplicities = torch.tensor([float(number) for number in count.values()])
        means = (row_means * multiplicities[:, None]).sum(0) / multiplicities.sum()
        means_by_column = dict(zip(COLUMNS, means.tolist(), strict=True)) | _counted(prompt, rows)
        means_by_column["entropy"] /= means_by_column["tokens"]
        row: dict[str, Any] = {
            name: round(value, DIGITS) for name, value in means_by_column.items()
        }
        row |= {} if reward_model else {"reward_model": None}
        row |= {} if several else {"ensemble": None, "ensemble_std": None}
        results.append(CheckpointResult(step=step, id=prompt.id, num_distinct=len(count), **row))
    return results


def _counted(prompt: Prompt, rows: Sequence[Completion]) -> dict[str, float]:
    """Measures that need no model: means over the samples of a problem."""
    # Counted by text, not by tokens: two lists of tokens may spell the same text.
    texts = Counter(row.completion for row in rows)
    right = [n for text, n in texts.items() if answer_checker.solves_problem(prompt, text)]
    sums = {
        "correct": sum(right),
        "tokens": sum(len(row.completion_ids) for row in rows),
        "truncated": sum(row.finish_reason == "length" for row in rows),
        "repetition": sum(repeated_share(row.completion_ids, NGRAM) for row in rows),
    }
    return {name: number / len(rows) for name, number in sums.items()}


def group_by_step(rows: Sequence[CheckpointResult]) -> dict[int, list[CheckpointResult]]:
    """Step -> its rows, from 0 on, the same problems in the same order; else a ValueError."""
    results_by_step: dict[int, list[CheckpointResult]] = {}
    for row in rows:
        results_by_step.setdefault(row.step, []).append(row)
    ids = {step: [row.id for row in rows] for step, rows in results_by_step.items()}
    if 0 not in results_by_step or any(step_ids != ids[0] for step_ids in ids.values()):
        raise ValueError(
            f"expected rows of step 0 and of the same problems at every step, found steps "
            f"{sorted(results_by_step)} with {list(map(len, ids.values()))} problems. Rerun "
            f"the study checkpoints, which writes them."
        )
    return {step: results_by_step[step] for step in sorted(results_by_step)}


def summarise_checkpoints(rows: Sequence[CheckpointResult], **bootstrap: Any) -> dict[str, Any]:
    """`steps`: of each, `{quantity: {value, low, high}}` by `bootstrap_means`; `best_step`.

    `<quantity>_gain` is the paired difference from the start; null without a scorer. Among equally
    accurate steps the first is the best: it is nearest to the start. Its accuracy is the largest of
    several noisy numbers, so report another split's.
    """
    steps, start = {}, group_by_step(rows)[0]
    for step, now in group_by_step(rows).items():
        columns = {name: [getattr(row, name) for row in now] for name in QUANTITIES}
        for name in PAIRED:
            pairs = zip(columns[name], (getattr(row, name) for row in start), strict=True)
            columns[f"{name}_gain"] = [
                None if None in pair else pair[0] - pair[1] for pair in pairs
            ]
        measured = {name: values for name, values in columns.items() if None not in values}
        estimates = bootstrap_means(
            np.array(list(zip(*measured.values(), strict=True))), **bootstrap
        )
        intervals = {
            name: with_interval(*bounds) for name, *bounds in zip(measured, *estimates, strict=True)
        }
        steps[str(step)] = {name: intervals.get(name) for name in columns}
    best = max(steps, key=lambda step: (steps[step]["correct"]["value"], -int(step)))
    return {"num_problems": len(start), "best_step": int(best), "steps": steps}
