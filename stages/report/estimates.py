"""Estimates of a policy's quality: of each problem, in tables over seeds, and their means."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int

from stages.algorithms.selection.best_of_n import pass_at_k
from stages.records import lines, temperatures
from stages.records.metrics import read_metrics, round_metric
from stages.records.pools import ProblemResult, ScoredPrompt
from stages.records.temperatures import Split, TemperatureResult
from stages.report.evaluation_config import CUT
from stages.report.sharpening import PolicyTemperatures, Table

MEAN, GREEDY, MAJORITY, PASS = "mean_accuracy", "greedy_accuracy", "majority", "pass"
BEST_OF, WEIGHTED, TOKENS = "best_of", "weighted", "mean_tokens"
BEST_TEMPERATURE = "best_temperature_accuracy"
"""Accuracy of a sample at the policy's best temperature (`sharpening.choose_temperature`); absent,
here and in all that follows, where dev problems are too few to choose one."""
FIELDS = (
    MEAN, "mean_strict", "mean_lenient", GREEDY, "greedy_strict", "greedy_lenient",
    "readable_rate", "format_rate", "right_first_rate", "truncation_rate", TOKENS,
)  # fmt: skip
"""Estimates that are fields of ProblemResult with the same name, except that `greedy_accuracy` is
its field `greedy_correct`. All other estimates are called `<method>/<n>`."""
OF_SAMPLES = ("truncation_rate", TOKENS)
"""Estimates of samples without a gold answer, besides the scores of rewards."""
IN_LOOP = "in_loop/test_greedy"
"""Share of greedy completions truncated while repeating themselves; absent below 1 %."""


RowT = TypeVar("RowT", ProblemResult, ScoredPrompt)


@dataclass(frozen=True, kw_only=True)
class Results:
    """Evaluations of all policies, on the same seeds and the same problems."""

    seeds: list[int]
    ids: list[str]
    """Of the problems."""
    num_samples: int
    ns: list[int]
    """The numbers of samples for which votes and best-of-n are estimated, rising."""
    tables: dict[str, dict[str, Table]]
    """Policy -> estimate (see `collect_estimates`) -> its table; the baseline is the first."""
    halves: dict[str, tuple[Table, Table]]
    """Policy -> mean accuracy of the samples of even, and of odd number."""
    metrics: dict[str, dict[int, dict[str, Any]]]
    """Policy -> seed -> its metrics.json."""
    confidence: float
    clusters: Int[np.ndarray, " problem"] | None = None
    """Cluster index of each problem; problems of a cluster are no independent evidence. None: each
    problem is a cluster of its own."""
    temperatures: dict[str, PolicyTemperatures] = field(default_factory=dict)
    """Of each policy; empty where no answer can be checked, and of episodes."""

    @property
    def ks(self) -> list[int]:
        """The numbers of samples for which pass@k is estimated, rising, the last `num_samples`."""
        names = (name.split("/") for name in next(iter(self.tables.values())))
        return sorted(int(parts[1]) for parts in names if parts[0] == PASS)

    def methods(self, policy: str, way: str) -> list[str]:
        """Rewards by which a policy's completions are chosen (`best_of`) or weighed."""
        ends = [name.split("/") for name in self.tables[policy]]
        return list(dict.fromkeys(parts[1] for parts in ends if parts[0] == way))


def check_ids(ids: Sequence[str], others: Iterable[Sequence[str]], what: str) -> None:
    """A ValueError unless all are the same ids in the same order; `what`: of what."""
    if (
        different := next((other for other in others if list(other) != list(ids)), None)
    ) is not None:
        raise ValueError(
            f"expected the same {what} of every policy and seed, in the same order, found "
            f"{len(ids)} and {len(different)} that differ. They come from different runs: rerun "
            f"`dvc repro`."
        )


def find_not_evaluated(
    folder: Path, policies: Collection[str], seeds: Sequence[int]
) -> dict[str, float]:
    """Policies that `evaluate` left out, and the share of their completions that were cut.

    The largest of any seed and file.
    """
    shares = {
        policy: [
            share
            for metrics in read_metrics(folder / policy, seeds).values()
            for name, share in metrics.items()
            if name.startswith(CUT)
        ]
        for policy in policies
    }
    return {policy: max(of_policy) for policy, of_policy in shares.items() if of_policy}


def read_rows(
    folder: Path, policies: Sequence[str], seeds: Sequence[int], kind: type[RowT]
) -> dict[str, list[list[RowT]]]:
    """Policy -> of each seed the rows of its per_problem.jsonl, which are of the same problems."""
    rows = {
        policy: [
            list(lines.read_lines(folder / f"{policy}/{seed}/per_problem.jsonl", kind))
            for seed in seeds
        ]
        for policy in dict.fromkeys(policies)
    }
    ids = [[row.id for row in of_seed] for of_policy in rows.values() for of_seed in of_policy]
    check_ids(ids[0], ids, "rows of the test split")
    return rows


def read_results(
    folder: Path, policies: Sequence[str], seeds: Sequence[int], confidence: float
) -> Results:
    """Results of the policies, baseline first, as written by `evaluate` below `folder`."""
    rows = read_rows(folder, policies, seeds, ProblemResult)
    first = rows[policies[0]][0]
    ids = [row.id for row in first]
    estimates = {
        policy: list(map(collect_estimates, of_seeds)) for policy, of_seeds in rows.items()
    }
    by_temperature = {name: read_temperatures(folder / name, seeds, ids) for name in rows}
    return Results(
        seeds=list(seeds),
        ids=ids,
        num_samples=first[0].num_samples,
        ns=sorted(int(n) for n in first[0].accuracy_at[MAJORITY]),
        tables={
            policy: {
                name: np.stack([estimate[name] for estimate in of_seeds]) for name in of_seeds[0]
            }
            | ({BEST_TEMPERATURE: chosen.test[chosen.best]} if chosen.is_chosen else {})
            for policy, of_seeds in estimates.items()
            for chosen in [by_temperature[policy]]
        },
        halves={policy: _halves(of_seeds) for policy, of_seeds in rows.items()},
        metrics={policy: read_metrics(folder / policy, seeds) for policy in rows},
        confidence=confidence,
        temperatures=by_temperature,
    )


def read_temperatures(folder: Path, seeds: Sequence[int], ids: Sequence[str]) -> PolicyTemperatures:
    """Accuracies of a policy by temperature; `ids`: of the test problems."""
    rows = [
        list(lines.read_lines(folder / f"{seed}/{temperatures.FILE}", TemperatureResult))
        for seed in seeds
    ]
    sampled = [[row for row in of_seed if row.file == "test"] for of_seed in rows]
    check_ids(ids, ([row.id for row in of_seed] for of_seed in sampled), "test problems")

    def tabulate(split: Split, reading: str) -> dict[float, Any]:
        present = dict.fromkeys(row.temperature for row in rows[0] if row.split == split)
        return {
            temperature: np.array(
                [
                    [
                        getattr(row, reading)
                        for row in of_seed
                        if (row.split, row.temperature) == (split, temperature)
                    ]
                    for of_seed in rows
                ]
            )
            for temperature in present
        }

    return PolicyTemperatures(
        sampled=sampled[0][0].temperature, dev=tabulate("dev", "accuracy"),
        test=tabulate("test", "accuracy"), lenient=tabulate("test", "lenient"),
    )  # fmt: skip


def collect_estimates(results: Sequence[ProblemResult]) -> dict[str, Float[np.ndarray, " problem"]]:
    """Every estimate of every problem, by its name: `mean_accuracy`, `best_of/outcome/8`.

    pass@k is also estimated for larger k than in `ks`: k is doubled up to the number of samples.
    """
    fields = {name: name for name in FIELDS} | {GREEDY: "greedy_correct"}
    num_samples, k, larger = results[0].num_samples, max(map(int, results[0].accuracy_at[PASS])), []
    while k < num_samples:
        k = min(2 * k, num_samples)
        larger.append(k)
    return (
        {
            name: np.array([float(getattr(row, field)) for row in results])
            for name, field in fields.items()
        }
        | {
            f"{method}/{n}": np.array([row.accuracy_at[method][n] for row in results])
            for method, of_n in results[0].accuracy_at.items()
            for n in of_n
        }
        | {
            f"{PASS}/{k}": np.array(
                [pass_at_k(num_samples, row.num_correct, k=k) for row in results]
            )
            for k in larger
        }
    )


def _halves(of_seeds: Sequence[Sequence[ProblemResult]]) -> tuple[Table, Table]:
    even = np.array([[row.even_correct for row in rows] for rows in of_seeds], dtype=np.float64)
    right = np.array([[row.num_correct for row in rows] for rows in of_seeds], dtype=np.float64)
    num_samples = of_seeds[0][0].num_samples
    num_even = (num_samples + 1) // 2
    return even / num_even, (right - even) / max(1, num_samples - num_even)


def average_results(results: Sequence[ProblemResult]) -> dict[str, Any]:
    """The content of an evaluation's metrics.json.

    The mean of each column over problems. Of `auc/<reward>` and `auc_in_format/<reward>` over the
    problems that have both right and wrong samples; absent where none has.
    """
    metrics: dict[str, Any] = {
        "num_problems": len(results), "num_samples": results[0].num_samples,
        **{name: round_metric(column.mean())
           for name, column in collect_estimates(results).items()},
    }  # fmt: skip
    for kind in ("auc", "auc_in_format"):
        for name in results[0].auc:
            areas = [area for row in results if (area := getattr(row, kind)[name]) is not None]
            if areas:
                metrics[f"{kind}/{name}"] = round_metric(sum(areas) / len(areas))
    return metrics


def average_scores(rows: Sequence[ScoredPrompt]) -> dict[str, Any]:
    """Metrics without gold answers: means over prompts, of each reward `reward/<name>`."""
    values = {
        f"reward/{name}": [fmean(row.scores[name]) for row in rows] for name in rows[0].scores
    }
    values |= {name: [getattr(row, name) for row in rows] for name in OF_SAMPLES}
    return {"num_problems": len(rows)} | {
        name: round_metric(fmean(column)) for name, column in values.items()
    }
