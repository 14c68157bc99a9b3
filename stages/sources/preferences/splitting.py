"""Split pairs by the hash of how their conversation opens."""

from collections.abc import Sequence

from stages.records.preferences import Preference, RawPreference
from stages.seeding import derive
from stages.sources.splitting import normalise

TRAIN, HELDOUT = "train", "heldout"


def opening(raw: RawPreference) -> str:
    """What was said before the assistant answered the first user turn, system message included.

    A greeting of the assistant belongs to it: many conversations may begin with the same one.
    Files of dialogues hold one conversation at several lengths. All of them begin alike and so
    stay on one side, as do, all the more, two pairs of one prompt.
    """
    roles = [turn.role for turn in raw.turns]
    asked = roles.index("user") if "user" in roles else len(roles)
    end = roles.index("assistant", asked) if "assistant" in roles[asked:] else len(roles)
    return normalise("\n".join(turn.content for turn in raw.turns[:end]))


def split(
    pairs: Sequence[tuple[RawPreference, Preference]], heldout_share: float
) -> dict[str, list[Preference]]:
    """Pairs by side, in their order.

    A pair's side is a function of its opening alone, not of the seed, the order or the others.

    Raises:
        ValueError: a side would be empty.
    """
    sides: dict[str, list[Preference]] = {TRAIN: [], HELDOUT: []}
    for raw, pair in pairs:
        position = derive(0, "import_preferences", opening(raw)) / 2**63
        sides[HELDOUT if position < heldout_share else TRAIN].append(pair)
    empty = [side for side, members in sides.items() if not members]
    if empty:
        raise ValueError(
            f"{len(pairs)} pairs leave {' and '.join(empty)} empty. Use a file with more pairs "
            f"that fit (max_tokens), or change heldout_share."
        )
    return sides
