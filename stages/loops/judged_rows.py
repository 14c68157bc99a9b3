"""From pairs to single completions with a verdict."""

from collections.abc import Iterable

from stages.records.preferences import Judged, Preference


def judged_rows(pairs: Iterable[Preference]) -> list[Judged]:
    """Each distinct chosen completion, desirable, and each distinct rejected one, undesirable.

    In order of appearance. A completion that is in several pairs is one row; one that is
    chosen in a pair and rejected in another (a ranking of more than two gives such) is a row
    of either verdict.

    Raises:
        ValueError: a pair whose label is not sure: KTO's rows are desirable or not.
    """
    found: dict[tuple[str, tuple[int, ...], bool], Judged] = {}
    for pair in pairs:
        if pair.probability != 1:
            raise ValueError(
                f"KTO takes pairs that are sure, found a label of {pair.probability} from "
                f"'{pair.source}' at problem '{pair.id}': set labels: hard where the pairs are made"
            )
        for completion, ids, desirable in (
            (pair.chosen, pair.chosen_ids, True),
            (pair.rejected, pair.rejected_ids, False),
        ):
            row = Judged(
                id=pair.id,
                prompt=pair.prompt,
                prompt_ids=pair.prompt_ids,
                completion=completion,
                completion_ids=ids,
                desirable=desirable,
            )
            found.setdefault((pair.id, tuple(ids), desirable), row)
    return list(found.values())
