"""What a policy on its way through training did on one problem."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointResult:
    """One row of `data/evaluate_checkpoints/<name>/rows.jsonl`.

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
    """Mean score by the ensemble, its members' scores made one as params.yaml says."""
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
