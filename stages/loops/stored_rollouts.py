"""Rollouts as JSON content and back, to the bit: what a checkpoint holds of them."""

from typing import Any

from stages.loops.rollouts import Rollouts
from stages.records.episodes import Episode
from stages.records.lines import to_dict
from stages.records.problems import Prompt
from stages.sampler import Sample


def encode_rollouts(rollouts: Rollouts) -> dict[str, Any]:
    """JSON content of rollouts; it shares their lists."""
    return {
        "prompts": [to_dict(prompt) for prompt in rollouts.prompts],
        "groups": rollouts.groups,
        "numbers": rollouts.numbers,
        "samples": [to_dict(sample) for sample in rollouts.samples],
        "texts": rollouts.texts,
        "episodes": None
        if rollouts.episodes is None
        else [to_dict(episode) for episode in rollouts.episodes],
    }


def decode_rollouts(content: dict[str, Any]) -> Rollouts:
    """The rollouts that `encode_rollouts` was given."""
    episodes = content["episodes"]
    return Rollouts(
        prompts=[Prompt(**prompt) for prompt in content["prompts"]],
        groups=content["groups"],
        numbers=content["numbers"],
        samples=[_decode_sample(sample) for sample in content["samples"]],
        texts=content["texts"],
        episodes=None if episodes is None else [Episode(**episode) for episode in episodes],
    )


def _decode_sample(content: dict[str, Any]) -> Sample:
    fields: dict[str, Any] = dict(content)
    fields["insertions"] = tuple((place, tuple(ids)) for place, ids in content["insertions"])
    return Sample(**fields)
