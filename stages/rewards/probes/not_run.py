"""Why a probe has no value, in words."""

from collections.abc import Collection

from stages.rewards.probes.catalogue import PROBES
from stages.rewards.probes.given import Words

NO_MODEL, NO_FILE = "no_model", "data/no_file"
"""Words of an entry that name nothing."""


def reasons(found: Collection[str], words: Words, *, has_chat_template: bool) -> dict[str, str]:
    """Each probe of the catalogue that is not among `found`, with why.

    Args:
        found: the probes that have a value.
        words: what the entry names to measure with.
        has_chat_template: whether the policy has one.
    """
    why = {
        "reward_model": "no reward model named",
        "process": "no process model named",
        "judge": "no judge named",
        "transfer": "no file of other problems named",
        "refusals": "no file of requests named",
    }
    told: dict[str, str] = {}
    named = words._asdict()
    for probe, definition in PROBES.items():
        if probe in found:
            continue
        if definition.needs == "refusals" and not has_chat_template:
            told[probe] = "no chat template: such a model neither answers nor refuses requests"
        elif named.get(definition.needs) in (NO_MODEL, NO_FILE):
            told[probe] = why[definition.needs]
        elif definition.needs == "redraw":
            told[probe] = "the problems are not generated, so their numbers cannot be drawn again"
        else:
            told[probe] = "not a single problem to measure it on"
    return told
