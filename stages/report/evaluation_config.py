"""Section `evaluation` of params.yaml, and the test of scores: the same for all, to compare."""

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from stages.algorithms.selection.best_of_n import MIN_POOL_RATIO
from stages.config import Params
from stages.records.pools import Completion

logger = logging.getLogger(__name__)
CUT = "cut/"
"""Prefix of the metrics of a policy that was not evaluated, one key per file."""
MIN_LOOP_TOKENS = 16
"""Fewest tokens of a repetition: a shorter one may be chance, as in 1000."""


class Bins(Params):
    """Bins of scores and of length differences in a test of scores."""

    num_bins: int = Field(ge=1)
    """Bins of the calibration error."""
    length_tolerance: int = Field(ge=0)
    """Largest difference in tokens between the completions of a pair of matched lengths."""
    length_edges: list[int] = Field(min_length=1)
    """Lower edges of the buckets of length differences, with one more bucket below the first."""

    @field_validator("length_edges")
    @classmethod
    def rising(cls, edges: list[int]) -> list[int]:
        """Raise a ValueError if an edge is not above the one before it."""
        if any(low >= high for low, high in itertools.pairwise(edges)):
            raise ValueError(f"expected rising edges, each once, found {edges}: sort them")
        return edges


class Intervals(Params):
    """Confidence intervals."""

    num_bootstrap: int = Field(ge=100)
    """Resamples of the problems for each interval."""
    confidence: float = Field(gt=0, lt=1)
    """Coverage of the intervals."""


class QualityConfig(Bins, Intervals):
    """Test of scores: bins and confidence intervals."""


class EvaluationConfig(Intervals):
    """Evaluation of policies and rewards, the same for all, so that numbers compare."""

    ks: list[int] = Field(min_length=1)
    """Numbers of samples that a vote or a choice is among."""
    num_draws: int = Field(gt=0)
    """Random subsets that a weighted vote is averaged over."""
    decimals: int = Field(ge=3, le=9)
    """Decimals kept of a score: the others are rounding, and would break ties at random."""

    def check(self, num_samples: int, samples: Path) -> None:
        """Raise a ValueError if `ks` are too large for so many samples of a problem."""
        if max(self.ks) * MIN_POOL_RATIO > num_samples:
            raise ValueError(
                f"evaluation.ks: expected numbers up to {num_samples // MIN_POOL_RATIO}, a quarter "
                f"of the {num_samples} samples of each problem in {samples}; found {max(self.ks)}. "
                f"Lower ks, or raise sampling.test.num_samples."
            )

    max_cut_share: float = Field(ge=0, le=1)
    """Largest share of a policy's completions that may be truncated at `max_new_tokens`. Those that
    end in a loop do not count: they would be truncated at any limit."""

    def check_cut(self, rows: Sequence[Completion], path: Path) -> dict[str, float]:
        """`in_loop/<file>` -> share of completions truncated in a loop, unless below 1 %.

        `cut/<file>` -> share truncated otherwise, if above `max_cut_share`: then the policy is not
        evaluated.
        """
        # It imports torch, which `compare` does not need.
        from stages.algorithms.length_and_repetition import ends_in_loop

        cut = [row.completion_ids for row in rows if row.finish_reason == "length"]
        in_loop = sum(ends_in_loop(ids, min_length=MIN_LOOP_TOKENS) for ids in cut) / len(rows)
        share = len(cut) / len(rows) - in_loop
        message = f"{in_loop:.1%} of the completions in {path} are truncated in a loop"
        if share > self.max_cut_share:
            logger.warning(
                "%s, %.1f %% otherwise, at max_new_tokens, and a truncated answer counts as "
                "wrong: above %.0f %% the policy is not evaluated. Raise "
                "`sampling.%s.max_new_tokens`; to evaluate a policy that has not learned to stop, "
                "such as one trained only on episodes, raise `evaluation.max_cut_share`",
                message, 100 * share, 100 * self.max_cut_share, path.stem.removesuffix("_greedy"),
            )  # fmt: skip
            return {f"{CUT}{path.stem}": round(share, 6)}
        if in_loop < 0.01:
            return {}
        logger.warning("%s, and %.1f %% otherwise", message, 100 * share)
        return {f"in_loop/{path.stem}": round(in_loop, 6)}

    def quality(self, bins: Bins) -> QualityConfig:
        """Configuration of the test of scores, with these bins."""
        return QualityConfig(
            **bins.model_dump(), num_bootstrap=self.num_bootstrap, confidence=self.confidence
        )


def check_ks(content: Mapping[str, Any]) -> Iterator[str]:
    """Error message if `evaluation.ks` asks for votes among more samples than there will be.

    Yields nothing if the sections cannot be read: another check reports them.
    """
    try:
        number = content["sampling"]["test"]["num_samples"]
        EvaluationConfig.model_validate(content["evaluation"]).check(number, Path("data/samples"))
    except (KeyError, TypeError, ValidationError):
        return
    except ValueError as error:
        yield str(error)
