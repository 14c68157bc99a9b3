"""Scores by which one of a problem's samples is chosen, and their weights in a vote.

The scores are those of reward models, by name; of the policy (`mean_logprob`); and three that need
no model: `format` (any completion in the format of the demonstrations; as a vote, the majority of
those), `longest` and `shortest`. A reward model that does not beat these is not worth its cost.

The aggregation of a process model's step scores to one score is chosen on held-out solutions
(`choose_aggregation`) and frozen in aggregation.json.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from stages.algorithms.selection.best_of_n import best_of_n
from stages.algorithms.selection.step_scores import KINDS, Kind
from stages.algorithms.selection.votes import weighted_vote
from stages.config import Params
from stages.records.pools import Completion, Score
from stages.records.problems import Prompt
from stages.records.steps import StepLabels
from stages.rewards import answer_checker
from stages.rewards.final_answer import extract_answer
from stages.rewards.problem_evaluation import SampleScores, number_answers, read_final_answer

AGGREGATION = "aggregation.json"


class Aggregation(Params):
    """Content of `data/rewards/<process reward>/<seed>/aggregation.json`."""

    best_of: Kind
    """Aggregation of step scores for the choice of the best completion."""
    weighted: Kind
    """Aggregation of step scores for a vote weighted by them."""

    def write(self, folder: Path) -> None:
        """Write aggregation.json."""
        (folder / AGGREGATION).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_aggregation(folder: Path) -> Aggregation:
    """Aggregation that a process model's stage wrote into `folder`."""
    return Aggregation.model_validate_json((folder / AGGREGATION).read_text(encoding="utf-8"))


DEFAULT_KIND: Kind = "min"
"""Aggregation if no problem has both a right and a wrong solution: the worst step counts (Zhang et
al. 2025, https://arxiv.org/abs/2501.07301: for scores learned from people, whose files
seldom say whether an answer is right)."""


def choose_aggregation(
    rows: Sequence[StepLabels], scores: Sequence[Sequence[float]]
) -> tuple[Aggregation, dict[str, dict[Kind, float]]]:
    """Kinds of `selection/step_scores` with the highest accuracy, and the accuracies of all kinds.

    Accuracy is the mean over the problems that have right and wrong solutions: of the solution with
    the highest score (`best_of`), and of the answer with the largest sum of scores (`weighted`).
    The best kind depends on the meaning of the labels (Zhang et al. 2025). Rows with an unknown
    verdict are left out; so are, from the votes, problems whose right answers cannot be parsed. If
    no problem is left, the kind is `DEFAULT_KIND` and has no accuracy.
    """
    problems: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        if row.correct is not None:
            problems.setdefault(row.id, []).append(number)
    accuracies: dict[str, dict[Kind, list[float]]] = {
        use: {kind: [] for kind in KINDS} for use in ("best_of", "weighted")
    }
    for solutions in problems.values():
        right = [bool(rows[number].correct) for number in solutions]
        if len(set(right)) == 1:
            continue
        texts = ["\n".join(rows[number].steps) for number in solutions]
        # A right solution's answer shows, as a gold answer does, whether words are answers.
        gold = extract_answer(texts[right.index(True)]) or ""
        answers = [read_final_answer(text, gold) for text in texts]
        can_vote = answers[right.index(True)] is not None
        numbers, is_right = number_answers(answers, right)
        quality, every = np.array(right, dtype=np.float64), np.arange(len(solutions))[None]
        for kind in KINDS:
            values = aggregate_steps([scores[number] for number in solutions], kind)
            accuracies["best_of"][kind].append(best_of_n(values, quality, n=len(solutions)))
            if can_vote:
                vote = weighted_vote(numbers, values, is_right, subsets=every)
                accuracies["weighted"][kind].append(vote)
    accuracy: dict[str, dict[Kind, float]] = {
        use: {kind: round(float(np.mean(values)), 6) for kind, values in of_kind.items()}
        for use, of_kind in accuracies.items()
        if of_kind[DEFAULT_KIND]
    }
    best: dict[str, Kind] = {
        use: max(KINDS, key=accuracy[use].__getitem__) if use in accuracy else DEFAULT_KIND
        for use in accuracies
    }
    return Aggregation(**best), accuracy


WITHOUT_A_REWARD = ("mean_logprob", "format", "longest", "shortest")
MEAN_LOGPROB, FORMAT, LONGEST, SHORTEST = WITHOUT_A_REWARD


def score_pool(
    prompt: Prompt, pool: Sequence[Completion], rows: Sequence[Score],
    aggregations: Mapping[str, Aggregation],
) -> dict[str, SampleScores]:  # fmt: skip
    """Scores and vote weights of a problem's samples, by name of the score.

    Vote weights are fixed transforms of scores, since a monotone transform changes a vote: the
    logistic function of a logit (for a Bradley-Terry model the probability to beat an answer of
    reward 0), a process score unchanged, exp of a mean log-prob. The mean log-prob is that of the
    tempered distribution from which the samples were drawn; choice by it: Chen et al. 2021
    (https://arxiv.org/abs/2107.03374), section 3.3.

    `rows` are in the order of `pool`; `aggregations` are those of process models.
    """
    if clashes := (rows[0].scores.keys() | rows[0].steps.keys()) & set(WITHOUT_A_REWARD):
        raise ValueError(
            f"expected rewards with other names than {', '.join(WITHOUT_A_REWARD)}, which need no "
            f"model, found {', '.join(sorted(clashes))}: rename it in the table `rewards`"
        )
    views: dict[str, SampleScores] = {}
    for name in rows[0].scores:
        logits = np.array([row.scores[name] for row in rows])
        views[name] = SampleScores(logits, 1.0 / (1.0 + np.exp(-logits)))
    for name in rows[0].steps:
        steps, chosen = [row.steps[name] for row in rows], aggregations[name]
        best_of, weighted = (aggregate_steps(steps, kind)
                             for kind in (chosen.best_of, chosen.weighted))  # fmt: skip
        views[name] = SampleScores(best_of, weighted)
    has_format = {
        text: float(answer_checker.has_format(prompt.whole(text), prompt.answer_forms))
        for text in {row.completion for row in pool}
    }
    formatted = np.array([has_format[row.completion] for row in pool])
    lengths = np.array([len(row.completion_ids) for row in pool], dtype=np.float64)
    logprobs = _round_scores([row.logprob_sum / len(row.completion_ids) for row in pool])
    views[MEAN_LOGPROB] = SampleScores(logprobs, np.exp(logprobs))
    views[FORMAT] = SampleScores(formatted, formatted)
    views[LONGEST], views[SHORTEST] = SampleScores(lengths, None), SampleScores(-lengths, None)
    return views


def aggregate_steps(steps: Sequence[Sequence[float]], kind: Kind) -> Float[np.ndarray, " sample"]:
    """One score per completion, aggregated from the scores of its steps."""
    # Products of the same numbers in another order differ by rounding, and must tie.
    return _round_scores([KINDS[kind](step_scores) for step_scores in steps])


def _round_scores(values: Sequence[float]) -> Float[np.ndarray, " sample"]:
    return np.round(np.array(values, dtype=np.float64), 9)
