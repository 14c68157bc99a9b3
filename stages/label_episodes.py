"""Preference pairs of episodes with the same start: the one with the higher reward is chosen.

    python -m stages label_episodes <pairs> --by episodes --preset .. --from .. --on episodes/..

Writes pairs of each seed for `train: dpo`. Their log-ratios are over the policy's tokens; the
environment's tokens between them are only context. Episodes in which the environment failed are
left out. An episode whose last turn was truncated or could not be parsed is never chosen, whatever
its reward: it would teach not to stop. Pairs with the largest differences of reward come first; an
episode is in at most one pair.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from stages import stage
from stages.config import Params
from stages.loops.run import Run
from stages.records import lines
from stages.records.episodes import EPISODES, FAILED, FINISHED, Episode
from stages.records.preferences import Preference


class EpisodePairsPreset(Params):
    """Preference pairs from rewards of episodes."""

    max_pairs_per_start: int = Field(ge=1)
    """Limit of pairs per start, so that no start dominates."""


class Config(Params):
    """Keys of params.yaml that label_episodes reads, and its preset."""

    seeds: list[int]
    preset: EpisodePairsPreset


def main(*words: str) -> None:
    """Write `train.jsonl` and `metrics.json` of each seed."""
    stage.run(label_pairs, words, Config)


def label_pairs(run: Run) -> dict[str, Any]:
    """Write the pairs of one seed; returns their metrics. A ValueError if there are none."""
    by_start: dict[str, list[Episode]] = defaultdict(list)
    for episode in lines.read_lines(run.source / EPISODES, Episode):
        by_start[episode.id].append(episode)
    pairs = [
        pair
        for episodes in run.track(by_start.values(), unit="starts")
        for pair in pair_episodes(episodes, run.config.preset.max_pairs_per_start)
    ]
    if not pairs:
        raise ValueError(
            f"{run.source / EPISODES}: expected starts with a finished episode of a higher reward "
            f"than another, found none in {len(by_start)}: play more episodes per start "
            f"(num_episodes in the row of `episodes`), or with a policy that sometimes succeeds"
        )
    run.write("train.jsonl", pairs)
    metrics = {"starts": len(by_start), "pairs": len(pairs)}
    run.log(0, metrics)
    return metrics


def pair_episodes(episodes: Sequence[Episode], max_pairs: int) -> list[Preference]:
    """Pairs of the best finished episode with the worst, the second best with the second worst, ...

    Their token ids are those that the policy wrote.
    """
    played = [item for item in episodes if item.ending != FAILED and item.sampled]
    ranked = sorted(played, key=lambda episode: (-episode.reward, episode.index))
    finished = [episode for episode in ranked if episode.ending in FINISHED]
    pairs = zip(finished, reversed(ranked), strict=False)
    preferences = list[Preference]()
    for better, worse in [pair for pair in pairs if pair[0].reward > pair[1].reward][:max_pairs]:
        chosen_ids, chosen_insertions = better.split_tokens()
        rejected_ids, rejected_insertions = worse.split_tokens()
        preferences.append(Preference(
            id=better.id, prompt="", prompt_ids=better.prompt_ids, chosen="", rejected="",
            chosen_ids=chosen_ids, rejected_ids=rejected_ids, probability=1.0,
            source="environment", chosen_insertions=chosen_insertions,
            rejected_insertions=rejected_insertions,
        ))  # fmt: skip
    return preferences
