"""What a policy did on one problem."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemResult:
    """One row of `data/evaluate_policy/<policy>/per_problem.jsonl`.

    Everything is expected over random draws from the problem's pool of N samples, so the
    same problem under two policies, or two ways to select, can be compared as a pair.
    """

    id: str
    num_samples: int
    """N."""
    num_correct: int
    greedy_correct: bool
    """Whether the greedy completion's answer is right."""
    greedy_strict: bool
    """The same, read strictly: `rewards/answer_readings`."""
    greedy_lenient: bool
    mean_accuracy: float
    """`num_correct` / N: the accuracy of one random sample."""
    mean_strict: float
    mean_lenient: float
    accuracy_at: dict[str, dict[str, float]]
    """Method -> n, as text -> probability that what the method makes of n samples is right:
    `pass` (any of them is right), `majority` (the most frequent answer), `best_of/<scorer>` (the
    sample with the highest score), `weighted/<scorer>` (the answer with the highest sum of
    weights)."""
    readable_rate: float
    """Share of the samples from which the answer checker reads an answer."""
    format_rate: float
    """Share that has the format of the demonstrations."""
    truncation_rate: float
    """Share that was cut at the length limit."""
    mean_tokens: float
    """Mean number of generated tokens."""
