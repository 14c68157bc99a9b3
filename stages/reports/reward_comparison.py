"""What there is to compare of reward models: each with its words in the plan and its metrics."""

from collections.abc import Callable, Mapping
from typing import Any

from stages.recipe import Recipe

SOURCES = {
    "label_preferences": "verifier",
    "judge_preferences": "AI judge",
    "revise_answers": "constitution",
    "import_preferences": "people",
}
"""Stage that made the pairs -> who said which completion is better."""
Read = Callable[[str], dict[str, Any]]
"""An entry (`train_reward_model/sft-0`) -> the content of its metrics.json."""


def reward_models(plan: Recipe, read: Read) -> dict[str, dict[str, Any]]:
    """Each reward model: who labelled, what it was trained on, and its quality on held-out pairs.

    Those that are tested on the same pairs stand together, then by label source, noise, name.
    """
    rows = {
        name: {
            "source": SOURCES[entry.pairs.split("/")[0]],
            "pairs": entry.pairs,
            "heldout": entry.heldout,
            "start": entry.start,
            "ensemble": entry.ensemble,
            "member": entry.member,
            "flip": entry.flip,
            "label_tokens": label_tokens(read(entry.pairs)),
            "quality": read(f"train_reward_model/{name}")["heldout"],
        }
        for name, entry in plan.train_reward_model.items()
    }
    order = sorted(rows, key=lambda name: (*_sorted_by(rows[name]), name))
    return {name: rows[name] for name in order}


def label_tokens(metrics: Mapping[str, Any]) -> int:
    """Tokens that models read or generated to make pairs; 0 where none was asked.

    A judge that reads its verdict off the next token generates none, and reads everything.
    """
    return metrics.get("read_tokens", 0) + metrics.get("generated_tokens", 0)


def outcome_models(plan: Recipe, read: Read) -> dict[str, dict[str, Any]]:
    """Each outcome model: its pools, and its quality on held-out completions."""
    return {
        name: {
            "pool": plan.train_outcome_reward[name].pool,
            "heldout": plan.train_outcome_reward[name].heldout,
            "quality": read(f"train_outcome_reward/{name}")["heldout"],
        }
        for name in sorted(plan.train_outcome_reward)
    }


def noise_curves(models: dict[str, dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Each set of pairs with several shares of flipped labels -> a point for each model of it.

    Held-out labels are never flipped.
    """
    curves: dict[str, list[dict[str, Any]]] = {}
    for name, one in models.items():
        accuracy = one["quality"]["accuracy"]
        if accuracy is not None:
            key = one["pairs"]
            if one["heldout"] != key:
                key += f" on {one['heldout']}"
            curves.setdefault(f"{key} from {one['start']}", []).append(
                {"model": name, "flip": one["flip"], **accuracy}
            )
    several = {key: rows for key, rows in curves.items() if len({r["flip"] for r in rows}) > 1}
    return {
        key: sorted(rows, key=lambda row: (row["flip"], row["model"]))
        for key, rows in several.items()
    }


def _sorted_by(one: dict[str, Any]) -> tuple[Any, ...]:
    places = list(SOURCES.values())
    return one["heldout"], places.index(one["source"]), one["pairs"], one["flip"], one["member"]
