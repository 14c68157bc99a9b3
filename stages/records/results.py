"""What a policy did on one problem, one row a problem."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemResult:
    """One row of `data/evaluations/<policy>/<seed>/per_problem.jsonl`.

    Everything is expected over random draws from the problem's N samples, so the same problem under
    two policies, seeds or ways to select can be compared as a pair.
    """

    id: str
    num_samples: int
    """N."""
    num_correct: int
    even_correct: int
    """Of them among the samples of even number: one half tells how difficult a problem is, the
    other, drawn independently, what a policy does on problems of this difficulty."""
    greedy_correct: bool
    """Whether the greedy completion's answer is right."""
    greedy_strict: bool
    """The same, read strictly: `rewards/answer_checker`."""
    greedy_lenient: bool
    mean_accuracy: float
    """`num_correct` / N: the accuracy of one random sample."""
    mean_strict: float
    mean_lenient: float
    accuracy_at: dict[str, dict[str, float]]
    """Method -> n, as text -> probability that what the method makes of n samples is right:
    `pass` (any of them is right), `majority` (the most frequent answer), `best_of/<reward>` (the
    sample with the highest score), `weighted/<reward>` (the answer with the highest sum of
    weights); the names besides those of rewards are in `rewards/pool_scores`."""
    auc: dict[str, float | None]
    """Reward -> how often it scores a right sample above a wrong one, ties half; None where the
    samples are all right or all wrong."""
    auc_in_format: dict[str, float | None]
    """The same among the samples in the format of the demonstrations, where a check of the format
    tells nothing."""
    readable_rate: float
    """Share of the samples from which the answer checker reads an answer."""
    format_rate: float
    """Share that has the format of the demonstrations."""
    truncation_rate: float
    """Share that was cut at the length limit."""
    mean_tokens: float
    """Mean number of generated tokens."""
