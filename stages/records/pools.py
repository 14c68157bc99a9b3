"""Records of completions and of their scores; joining pools with prompts.

`id` is the problem's; `index` is the sample's, from 0, and 0 for a greedy completion.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stages.records import lines
from stages.records.preferences import Preference
from stages.records.problems import Demonstration, Prompt
from stages.rows import PROMPTS


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """Completion in a pool or in a policy's samples: a row of their files."""

    id: str
    index: int
    completion: str
    """Decoded text without special tokens."""
    completion_ids: list[int]
    logprob_sum: float
    """Sum of the sampler's log-probs of `completion_ids`."""
    finish_reason: Literal["stop", "length"]
    seed: int
    """Seed of the request (one per problem)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """One row of `data/evaluations/<policy>/<seed>/scores.jsonl`; rewards by their names."""

    id: str
    index: int
    scores: dict[str, float]
    """Logits of reward models, their ensembles and outcome models, comparable only within a
    problem."""
    disagreement: dict[str, float]
    """Standard deviation of the members of each ensemble."""
    steps: dict[str, list[float]]
    """P(right so far) after each step, by each process model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemResult:
    """Results of a policy on a problem: a row of `<policy>/<seed>/per_problem.jsonl`.

    All estimates are expectations over random draws from the problem's N samples, for paired
    comparison.
    """

    id: str
    num_samples: int
    """N."""
    num_correct: int
    even_correct: int
    """Number of right samples with an even index. This half measures the difficulty of a problem;
    the other, independent half the accuracy at this difficulty."""
    greedy_correct: bool
    greedy_strict: bool
    """Read strictly: `rewards/answer_checker`."""
    greedy_lenient: bool
    mean_accuracy: float
    """`num_correct` / N: the accuracy of one random sample."""
    mean_strict: float
    mean_lenient: float
    accuracy_at: dict[str, dict[str, float]]
    """Method -> n, as text -> probability that the method's answer from n samples is right: `pass`
    (any of them is right), `majority` (the most frequent answer), `best_of/<reward>` (the sample
    with the highest score), `weighted/<reward>` (the answer with the highest sum of weights).
    Reserved names that are not rewards: `rewards/pool_scores`."""
    auc: dict[str, float | None]
    """Reward -> probability that it scores a right sample above a wrong one, ties half; None if the
    samples are all right or all wrong."""
    auc_in_format: dict[str, float | None]
    """The same among samples in the format of the demonstrations, so that recognising the format
    does not help."""
    readable_rate: float
    """Share of samples with an answer that the answer checker can parse."""
    format_rate: float
    """Share of samples in the format of the demonstrations."""
    right_first_rate: float
    """Share of samples that state a right answer first but a wrong one last."""
    truncation_rate: float
    """Share of truncated samples."""
    mean_tokens: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredPrompt:
    """Scores of a policy's samples for a prompt without a gold answer."""

    id: str
    scores: dict[str, list[float]]
    """Reward -> score of each sample; for a process model, aggregated over its steps."""
    truncation_rate: float
    mean_tokens: float


Side = Literal["train", "heldout"]
SIDES: tuple[Side, Side] = ("train", "heldout")
"""Training side (problems of the pool's split), and held-out side (dev problems)."""


def read_pools(folder: Path, seed: int, side: Side) -> list[tuple[Prompt, list[Completion]]]:
    """Prompts and completions of a seed's pool, as in `join_prompts`."""
    split = read_origin(folder)["split"] if side == "train" else "dev"
    return read_split(folder / str(seed), split, side)


def read_origin(folder: Path) -> dict[str, str]:
    """`split` of a pool's problems, and `policy` from which it was sampled."""
    path = folder / "pool.json"
    if not path.is_file():
        raise ValueError(
            f"expected a pool in {folder}, found no pool.json: completions are labelled "
            f"`on: pools/<name>`, a row of the table `pools`"
        )
    return json.loads(path.read_text(encoding="utf-8"))


def read_split(
    samples: Path, split: str, name: str | None = None
) -> list[tuple[Prompt, list[Completion]]]:
    """Prompts of a split with a policy's completions, from the file `name` or the split's."""
    return join_prompts(
        lines.read_lines(PROMPTS / f"{split}.jsonl", Prompt),
        lines.read_lines(samples / f"{name or split}.jsonl", Completion),
    )


def join_prompts(
    prompts: Iterable[Prompt], completions: Iterable[Completion]
) -> list[tuple[Prompt, list[Completion]]]:
    """Each prompt with its completions in the order of their index; prompts keep their order.

    A ValueError for a completion without a prompt, a prompt without completions, different numbers
    of completions, or a missing or repeated index.
    """
    pools: dict[str, list[Completion]] = defaultdict(list)
    for completion in sorted(completions, key=lambda row: row.index):
        pools[completion.id].append(completion)
    pairs = [(prompt, pools.pop(prompt.id, [])) for prompt in prompts]
    if pools:
        _refuse(f"completions of problem '{next(iter(pools))}', which is not among the prompts")
    if not pairs:
        _refuse("no prompt at all")
    num_samples = len(pairs[0][1])
    for prompt, pool in pairs:
        indices = [row.index for row in pool]
        if not pool or indices != list(range(num_samples)):
            _refuse(f"indices {indices} at problem '{prompt.id}' (the first has {num_samples})")
    return pairs


def align_scores(
    problems: Sequence[tuple[Prompt, list[Completion]]], rows: Iterable[Score]
) -> list[list[Score]]:
    """Scores of each completion of each problem, in the order of `problems`.

    A ValueError for a completion without scores, scores without a completion, or infinite ones.
    """
    by_completion = {(row.id, row.index): row for row in rows}
    keys = [[(row.id, row.index) for row in pool] for _, pool in problems]
    expected = {key for pool in keys for key in pool}
    for key in sorted(expected ^ by_completion.keys()):
        kind = "no score" if key in expected else "a score of no completion"
        _refuse(f"{kind} at problem '{key[0]}', index {key[1]}")
    for key, row in by_completion.items():
        steps = [(name, score) for name, of_steps in row.steps.items() for score in of_steps]
        for name, score in [*row.scores.items(), *steps]:
            if not math.isfinite(score):
                raise ValueError(
                    f"Expected finite scores, found {score} by '{name}' at problem '{key[0]}', "
                    f"index {key[1]}. The model diverged: look at its training loss, lower its "
                    f"learning rate and rerun."
                )
    return [[by_completion[key] for key in pool] for pool in keys]


def deduplicate(pool: Sequence[Completion]) -> tuple[list[Completion], list[int]]:
    """Distinct completions, in order of appearance, and the number of each completion's among them.

    A small model repeats itself: of 16 samples of the default run's policies 3 to 7 are distinct,
    and a model need score each text only once.
    """
    groups: dict[tuple[int, ...], int] = {}
    places = [groups.setdefault(tuple(row.completion_ids), len(groups)) for row in pool]
    return [pool[places.index(group)] for group in range(len(groups))], places


def _refuse(problem: str) -> None:
    raise ValueError(
        f"Expected a pool with the same number of completions, numbered from 0, for each of "
        f"its prompts, and a score of each where there are scores; found {problem}. The files "
        f"come from different runs: rerun `dvc repro`, which makes them from one another."
    )


def make_preference(
    prompt: Prompt, chosen: Completion, rejected: Completion, probability: float, source: str
) -> Preference:
    """A pair of completions of a problem as a row."""
    return Preference(
        id=prompt.id, prompt=prompt.prompt, prompt_ids=prompt.prompt_ids,
        chosen=chosen.completion, chosen_ids=chosen.completion_ids, rejected=rejected.completion,
        rejected_ids=rejected.completion_ids, probability=probability, source=source,
    )  # fmt: skip


def make_demonstration(prompt: Prompt, row: Completion) -> Demonstration:
    """A problem with a completion to imitate."""
    return Demonstration(
        id=prompt.id, task=prompt.task, prompt=prompt.prompt, prompt_ids=prompt.prompt_ids,
        completion=row.completion, completion_ids=row.completion_ids,
    )  # fmt: skip
