"""What each entry of a recipe is made from."""

from collections.abc import Collection, Mapping

from stages.recipe import ENSEMBLES, PREPARE_DATA, TABLES, Recipe, maker, members

NAMED = {
    "pool": "sample_candidates",
    "train": "sample_candidates",
    "heldout": "sample_candidates",
    "reference": "compute_ref_logprobs",
}
"""Words that are names of entries, and of which stage's; other words are folders or no entries."""
ONLY_TESTED_ON = ("heldout", "dev", "test")
"""Words of what nothing is learned from."""


def inputs(recipe: Recipe) -> dict[str, list[str]]:
    """Each entry -> the entries that it reads, in the order of its words."""
    return _read(recipe, without=())


def learned_from(recipe: Recipe) -> dict[str, list[str]]:
    """`inputs`, without what is only held out."""
    return _read(recipe, without=ONLY_TESTED_ON)


def _read(recipe: Recipe, *, without: Collection[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for stage in TABLES:
        for name, entry in getattr(recipe, stage).items():
            makers = [
                made_by
                for word, value in entry.model_dump().items()
                if word not in without
                for made_by in _makers(recipe, word, str(value))
            ]
            found[f"{stage}/{name}"] = list(dict.fromkeys(makers))
    return found


def _makers(recipe: Recipe, word: str, value: str) -> list[str]:
    """The entries that make what a word names; none where it names a preset, file or number."""
    if value.startswith(f"{ENSEMBLES}/"):
        return members(recipe, value.removeprefix(f"{ENSEMBLES}/"))
    stage, inside, _ = value.partition("/")
    if value == PREPARE_DATA or (inside and stage in (PREPARE_DATA, *TABLES)):
        return [maker(value)]
    return [f"{NAMED[word]}/{value}"] if word in NAMED else []


def lineage(entry: str, reads: Mapping[str, list[str]]) -> list[str]:
    """The entry and everything that it needs, each once, what is needed first.

    Raises:
        ValueError: an entry needs itself.
    """
    found: dict[str, None] = {}

    def visit(current: str, above: tuple[str, ...]) -> None:
        if current in above:
            raise ValueError(" -> ".join([*above[above.index(current) :], current]))
        if current not in found:
            for needed in reads.get(current, []):
                visit(needed, (*above, current))
            found[current] = None

    visit(entry, ())
    return list(found)
