"""Expected accuracies of a policy on one problem, from its samples.

The answer checker checks each distinct sample once; its verdicts give pass@k, majority@k, and, for
each score, best-of-n and weighted votes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from stages.algorithms.selection.best_of_n import best_of_n, pass_at_k
from stages.algorithms.selection.votes import UNREADABLE, majority_vote, weighted_vote
from stages.algorithms.statistics.score_quality import auc
from stages.records import lines, pools, temperatures
from stages.records.pools import Completion, ProblemResult, ScoredPrompt
from stages.records.problems import Prompt
from stages.records.temperatures import SampledFile, Split, TemperatureResult
from stages.rewards import answer_checker
from stages.rewards.final_answer import extract_answer


class SampleScores(NamedTuple):
    """Scores and vote weights of a problem's samples by one method of `pool_scores`."""

    values: Float[np.ndarray, " sample"]
    """Score of each sample: the highest is chosen."""
    weights: Float[np.ndarray, " sample"] | None
    """Weight of each sample in a vote, from 0 to 1; None: this method gives no weights."""


class CheckedCompletion:
    """Completion with its verdicts by every way to check that is reported."""

    def __init__(self, prompt: Prompt, text: str) -> None:
        completion, gold, forms = prompt.whole(text), prompt.gold, prompt.answer_forms
        self.answer = read_final_answer(completion, gold, forms)
        self.right = answer_checker.is_correct(completion, gold, forms)
        self.strictly_right = answer_checker.is_strictly_correct(completion, gold, forms)
        self.leniently_right = answer_checker.is_leniently_correct(completion, gold, forms)
        self.has_format = answer_checker.has_format(completion, forms)
        self.right_first = answer_checker.is_right_at_first(completion, gold, forms)


def evaluate_problem(
    prompt: Prompt,
    pool: Sequence[Completion],
    greedy: Completion,
    scores: Mapping[str, SampleScores],
    *,
    ks: Sequence[int],
    orders: Int[np.ndarray, "draw sample"],
) -> ProblemResult:
    """Evaluation of a policy on one problem: choice by `scores` among k samples, for k in `ks`.

    Weighted votes are averaged over prefixes of `orders` (`votes.nested_subsets`).
    """
    readings = read_each(prompt, [*pool, greedy])
    *samples, of_greedy = (readings[row.completion] for row in [*pool, greedy])
    right, answers = [sample.right for sample in samples], [sample.answer for sample in samples]
    verdicts, in_format = np.array(right), np.array([sample.has_format for sample in samples])

    def share(counted: Iterable[bool]) -> float:
        return sum(counted) / len(pool)

    return ProblemResult(
        id=prompt.id, num_samples=len(pool), num_correct=sum(right), even_correct=sum(right[::2]),
        greedy_correct=of_greedy.right, greedy_strict=of_greedy.strictly_right,
        greedy_lenient=of_greedy.leniently_right, mean_accuracy=share(right),
        mean_strict=share(sample.strictly_right for sample in samples),
        mean_lenient=share(sample.leniently_right for sample in samples),
        accuracy_at=compute_accuracies(right, answers, scores, ks=ks, orders=orders),
        auc={name: auc(view.values, verdicts) for name, view in scores.items()},
        auc_in_format={
            name: auc(view.values[in_format], verdicts[in_format]) for name, view in scores.items()
        },
        readable_rate=share(answer is not None for answer in answers),
        format_rate=share(sample.has_format for sample in samples),
        right_first_rate=share(sample.right_first for sample in samples),
        truncation_rate=share(row.finish_reason == "length" for row in pool),
        mean_tokens=sum(len(row.completion_ids) for row in pool) / len(pool),
    )  # fmt: skip


def compute_accuracies(
    right: Sequence[bool],
    answers: Sequence[str | None],
    scores: Mapping[str, SampleScores],
    *,
    ks: Sequence[int],
    orders: Int[np.ndarray, "draw sample"],
) -> dict[str, dict[str, float]]:
    """Expected accuracy with n of the samples, for each n of `ks`, by the way to choose.

    `pass`: any of the n is right. `majority`: the n vote. `best_of/<name>` and `weighted/<name>`:
    the one with the highest score, and a vote weighted by scores, for each of `scores`.
    """
    quality = np.array(right, dtype=np.float64)
    votes = majority_accuracy(answers, right, ks=ks).tolist()
    accuracies: dict[str, dict[str, float]] = {
        "pass": {str(n): pass_at_k(len(right), sum(right), k=n) for n in ks},
        "majority": {str(n): vote for n, vote in zip(ks, votes, strict=True)},
    }
    numbers, answer_is_right = number_answers(answers, right)
    for name, view in scores.items():
        accuracies[f"best_of/{name}"] = {str(n): best_of_n(view.values, quality, n=n) for n in ks}
        if view.weights is not None:
            accuracies[f"weighted/{name}"] = {
                str(n): weighted_vote(numbers, view.weights, answer_is_right, subsets=orders[:, :n])
                for n in ks
            }
    return accuracies


def summarise_scores(
    prompt: Prompt, pool: Sequence[Completion], scores: Mapping[str, SampleScores]
) -> ScoredPrompt:
    """Summary of a policy's samples of a prompt without a gold answer."""
    return ScoredPrompt(
        id=prompt.id,
        scores={name: view.values.tolist() for name, view in scores.items()},
        truncation_rate=sum(row.finish_reason == "length" for row in pool) / len(pool),
        mean_tokens=sum(len(row.completion_ids) for row in pool) / len(pool),
    )


def majority_accuracy(
    answers: Sequence[str | None], right: Sequence[bool], *, ks: Sequence[int]
) -> Float[np.ndarray, " k"]:
    """Accuracy of the majority vote of k of a problem's samples, for each k of `ks`."""
    numbers, is_right = number_answers(answers, right)
    unreadable = numbers == UNREADABLE
    sizes = np.bincount(numbers[~unreadable], minlength=len(is_right))
    return majority_vote(sizes, is_right, num_unreadable=int(unreadable.sum()), ns=list(ks))


def read_temperatures(samples: Path) -> list[TemperatureResult]:
    """Accuracy on each problem with a gold answer, at each sampling temperature.

    `samples`: the folder of one policy and seed. One row per problem and file.
    """
    by_split: dict[Split, list[SampledFile]] = defaultdict(list)
    for file in lines.read_lines(samples / temperatures.FILE, SampledFile):
        by_split[file.split].append(file)
    rows: list[TemperatureResult] = []
    for split, files in by_split.items():
        of_files = [pools.read_split(samples, split, file.name) for file in files]
        for of_problem in zip(*of_files, strict=True):
            prompt = of_problem[0][0]
            if prompt.answer is None:
                continue
            readings = read_each(prompt, (row for _, pool in of_problem for row in pool))
            for file, (_, pool) in zip(files, of_problem, strict=True):
                checked = [readings[row.completion] for row in pool]
                rows.append(TemperatureResult(
                    id=prompt.id, file=file.name, split=split, temperature=file.temperature,
                    num_samples=len(pool), accuracy=fmean(each.right for each in checked),
                    strict=fmean(each.strictly_right for each in checked),
                    lenient=fmean(each.leniently_right for each in checked),
                ))  # fmt: skip
    return rows


def read_each(prompt: Prompt, rows: Iterable[Completion]) -> dict[str, CheckedCompletion]:
    """Checked completions by text: equal texts are common, and a check is slow."""
    texts = dict.fromkeys(row.completion for row in rows)
    return {text: CheckedCompletion(prompt, text) for text in texts}


def number_answers(
    answers: Sequence[str | None], right: Sequence[bool]
) -> tuple[Int[np.ndarray, " sample"], Bool[np.ndarray, " answer"]]:
    """Number of each sample's answer, `UNREADABLE` without one; whether each number is right.

    Answers are grouped by `answer_checker.read_answer`, without the gold answer, which a vote does
    not know either. It leaves units out: `5 km` and `5 m`, of which one is right, are two answers.
    """
    numbers: dict[tuple[str | None, bool], int] = {}
    answer_numbers = [
        UNREADABLE if key == (None, False) else numbers.setdefault(key, len(numbers))
        for key in zip(answers, right, strict=True)
    ]
    is_right = np.array([is_right for _, is_right in numbers], dtype=np.bool_)
    return np.array(answer_numbers, dtype=np.int64), is_right


def read_final_answer(
    completion: str, gold: str = "", forms: answer_checker.Forms = None
) -> str | None:
    """Final answer as a value: one text for all ways to write it; None: none can be parsed."""
    answer = extract_answer(completion, forms)
    return None if answer is None else answer_checker.read_answer(answer, gold)


def pool_accuracy(problems: Sequence[tuple[Prompt, Sequence[Completion]]]) -> float:
    """Share of right samples, over all problems."""
    rows = [(prompt, row.completion) for prompt, pool in problems for row in pool]
    return sum(answer_checker.solves_problem(*row) for row in rows) / len(rows)
