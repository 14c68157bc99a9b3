"""Edits that add nothing to a policy's answers, and their effect on a model's score.

Each problem's distinct completions, without truncated ones, are scored unedited and edited. A
reward that rises for longer copies without new content pays for length: after the failures of
reward models and judges in Singhal et al. 2023 (https://arxiv.org/abs/2310.03716) and the
"repetitive list" of Zheng et al. 2023 (https://arxiv.org/abs/2306.05685), whose list is rephrased
by a model; here it is verbatim. Each copy is tokenised from its text, so that it differs only in
its words. The last line, which states the answer, stays last: right completions stay right.

A process model's score should not depend on how an answer is split into steps. Steps are token ids,
as `rewards/step_solutions` splits them: nothing is tokenised again, and joined they are the same
text, except `inflated`, which repeats a step, and `filler`, which adds one without content.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from scipy import stats

from stages.models.batch import Group
from stages.models.process_head import TokenizedSolution
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import answer_checker
from studies.probe_catalogue import ProbeValue

Problems = Sequence[tuple[Prompt, Sequence[Completion]]]
Steps = Sequence[Sequence[int]]
MIN_DIFFERENT = 3
"""Smallest number of completions for a rank correlation, which of two is always 1 or -1."""
DECIMALS = 5
"""Decimals of a score; a smaller change is rounding, and does not count as raised."""
PADDINGS = ("repeat_step", "restate", "list")
SIZES = ("split", "merged")
"""Edits with the same text: any change is a fault, so its absolute value is reported."""


def pad_completion(question: str, answer: str) -> dict[str, str]:
    """Kind of padding -> the answer made longer without new content.

    `repeat_step`: repeats the last line of working. `restate`: puts the question first. `list`:
    has all lines of working three times. An answer of one line has only `restate`.
    """
    *working, last = answer.split("\n")
    restated = {"restate": f"{question}\n{answer}"}
    if not working:
        return restated
    twice = {"repeat_step": "\n".join([*working, working[-1], last])}
    return twice | restated | {"list": "\n".join([*working * 3, last])}


def recut_steps(steps: Steps, filler: Sequence[int]) -> dict[str, Steps]:
    """Edited steps: the first repeated, a filler before the last, each split in two, two joined.

    The last step is never edited: its end ends the text. So a single step has no edits; steps are
    split only if one of them has two tokens, and joined only if there are three.
    """
    *working, last = steps
    edits: dict[str, Steps] = {}
    if working:
        edits = {"inflated": [steps[0], *steps], "filler": [*working, filler, last]}
    if any(len(step) > 1 for step in working):
        halves = [(step[: len(step) // 2], step[len(step) // 2 :]) for step in working]
        edits["split"] = [half for half in (*itertools.chain(*halves), last) if half]
    if len(steps) > 2:
        edits["merged"] = [[*steps[0], *steps[1]], *steps[2:]]
    return edits


class EditedCompletion(NamedTuple):
    """Completion, or an edited copy of one."""

    kind: str
    """Kind of the edit; `plain`: unedited."""
    original: int
    """Number of the completion among the problem's."""
    steps: Steps
    """Steps, a single one if it was not split."""


def measure_padding(
    problems: Problems, encode: Callable[[Sequence[str]], list[list[int]]],
    score: Callable[[Sequence[Group]], Sequence[float]], *, num_padded: int, max_tokens: int,
) -> Iterator[ProbeValue]:  # fmt: skip
    """Correlations of reward and length, and effect of padding, for each problem.

    Args:
        problems: problems with their distinct completions, of which the first `num_padded` are
            padded.
        encode: function from texts of completions to token ids, end-of-sequence token included.
        max_tokens: largest length with the prompt; a longer copy is left out.
    """
    copies, groups, start = [], [], 0
    for prompt, pool in problems:
        texts = [("plain", number, row.completion) for number, row in enumerate(pool)]
        edits = [pad_completion(prompt.question, row.completion) for row in pool[:num_padded]]
        for kind in PADDINGS:
            texts += [(kind, n, edit[kind]) for n, edit in enumerate(edits) if kind in edit]
        encoded = zip(texts, encode([text for _, _, text in texts]), strict=True)
        longest = max_tokens - len(prompt.prompt_ids)
        of_problem = [
            EditedCompletion(kind, n, [ids]) for (kind, n, _), ids in encoded if len(ids) <= longest
        ]
        copies.append(of_problem)
        if of_problem:
            ids = [copy.steps[0] for copy in of_problem]
            indices = range(start, start + len(ids))
            groups.append(Group(prompt_ids=prompt.prompt_ids, completions=ids, indices=indices))
            start += len(ids)
    scores = iter(score(groups) if groups else [])
    for (prompt, pool), of_problem in zip(problems, copies, strict=True):
        scored = [(copy, round(next(scores), DECIMALS)) for copy in of_problem]
        yield from _correlations(prompt, pool, scored)
        yield from _changes(prompt, scored)


def measure_recutting(
    problems: Problems, cut: Callable[[Sequence[int]], Steps],
    score: Callable[[Sequence[TokenizedSolution]], Sequence[float]], *, filler: Sequence[int],
    max_tokens: int,
) -> Iterator[ProbeValue]:  # fmt: skip
    """Share of edits of steps that raise the score, and the mean change, for each problem.

    Args:
        cut: function from a completion's tokens to steps.
        score: function from solutions to one score each, of all its steps.
        filler: tokens of a step without content.
        max_tokens: largest length with the prompt and one more token per step; a longer solution is
            left out.
    """
    copies, solutions = [], []
    for prompt, pool in problems:
        longest, of_problem = max_tokens - len(prompt.prompt_ids), []
        for number, row in enumerate(pool):
            steps = cut(row.completion_ids)
            for kind, edited in ({"plain": steps} | recut_steps(steps, filler)).items():
                if sum(len(step) + 1 for step in edited) <= longest:
                    of_problem.append(EditedCompletion(kind, number, edited))
        copies.append(of_problem)
        solutions += [
            TokenizedSolution(prompt_ids=prompt.prompt_ids, steps=copy.steps) for copy in of_problem
        ]
    scores = iter(score(solutions) if solutions else [])
    for (prompt, _), of_problem in zip(problems, copies, strict=True):
        yield from _changes(prompt, [(copy, round(next(scores), DECIMALS)) for copy in of_problem])


def _correlations(
    prompt: Prompt, pool: Sequence[Completion], scored: Sequence[tuple[EditedCompletion, float]]
) -> Iterator[ProbeValue]:
    plain = [(copy, score) for copy, score in scored if copy.kind == "plain"]
    texts = [pool[copy.original].completion for copy, _ in plain]
    is_right = [answer_checker.solves_problem(prompt, text) for text in texts]
    right = list(itertools.compress(plain, is_right))
    for probe, scored_copies in (("length_spearman", plain), ("length_spearman_right", right)):
        scores = [score for _, score in scored_copies]
        lengths = [len(copy.steps[0]) for copy, _ in scored_copies]
        # Equal ranks have no correlation.
        if len(scored_copies) >= MIN_DIFFERENT and len(set(scores)) > 1 and len(set(lengths)) > 1:
            correlation: Any = stats.spearmanr(scores, lengths)
            yield ProbeValue(probe=probe, id=prompt.id, value=float(correlation.statistic))


def _changes(
    prompt: Prompt, scored: Sequence[tuple[EditedCompletion, float]]
) -> Iterator[ProbeValue]:
    """Changes of the score by each kind of edit, relative to the same completion unedited.

    A completion that is too long unedited has no changes.
    """
    plain = {copy.original: score for copy, score in scored if copy.kind == "plain"}
    changes: dict[str, list[float]] = {}
    for copy, score in scored:
        if copy.kind != "plain" and copy.original in plain:
            changes.setdefault(copy.kind, []).append(score - plain[copy.original])
    for kind, differences in changes.items():
        raised = [float(change > 0) for change in differences]
        sizes = [abs(change) for change in differences] if kind in SIZES else differences
        name = f"{kind}_change" if kind in SIZES else f"{kind}_gain"
        for probe, values in ((f"{kind}_raised", raised), (name, sizes)):
            yield ProbeValue(probe=probe, id=prompt.id, value=sum(values) / len(values))
