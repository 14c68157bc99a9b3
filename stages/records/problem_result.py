"""What a policy did on one problem."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemResult:
    """One row of `data/evaluate_policy/<policy>/per_problem.jsonl`.

    Everything is expected over random draws from the problem's pool of N samples, so the
    same problem under two policies, or two ways to select, can be compared as a pair.
    The keys of the three tables are the numbers of samples drawn, as text.
    """

    id: str
    num_samples: int
    """N."""
    num_correct: int
    greedy_correct: bool
    """Whether the greedy completion's answer is right."""
    mean_accuracy: float
    """`num_correct` / N: the accuracy of one random sample."""
    pass_at: dict[str, float]
    """Probability that any of k samples is right."""
    majority_at: dict[str, float]
    """Probability that the most frequent answer of n samples is right."""
    best_of: dict[str, float]
    """Probability that the sample of n that the reward model scores best is right."""
    readable_rate: float
    """Share of the samples from which the answer checker reads an answer."""
    format_rate: float
    """Share that has the format of the demonstrations."""
    truncation_rate: float
    """Share that was cut at the length limit."""
    mean_tokens: float
    """Mean number of generated tokens."""
