"""The reference's stored log-probabilities, looked up by what a completion is."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from stages.records.preferences import Judged, Preference
from stages.records.ref_logprob import RefLogprob


def of_pairs(pairs: Sequence[Preference], rows: Iterable[RefLogprob]) -> Float[Tensor, "pair 2"]:
    """Of every pair's chosen completion (first) and rejected one.

    Raises:
        ValueError: a completion without a row.
    """
    both = [(pair.id, ids) for pair in pairs for ids in (pair.chosen_ids, pair.rejected_ids)]
    return _look_up(both, rows).view(-1, 2)


def of_judged(judged: Sequence[Judged], rows: Iterable[RefLogprob]) -> Float[Tensor, " row"]:
    """Of every row's completion.

    Raises:
        ValueError: a completion without a row.
    """
    return _look_up([(row.id, row.completion_ids) for row in judged], rows)


def _look_up(
    wanted: Sequence[tuple[str, list[int]]], rows: Iterable[RefLogprob]
) -> Float[Tensor, " completion"]:
    values = {(row.id, tuple(row.completion_ids)): row.logprob_sum for row in rows}
    missing = [name for name, ids in wanted if (name, tuple(ids)) not in values]
    if missing:
        raise ValueError(
            f"expected a reference log-prob of every completion of the pairs, found none for "
            f"{len(missing)} of {len(wanted)}, first at problem '{missing[0]}': the files come "
            f"from different runs. Rerun `dvc repro compute_ref_logprobs`."
        )
    return torch.tensor([values[name, tuple(ids)] for name, ids in wanted])
