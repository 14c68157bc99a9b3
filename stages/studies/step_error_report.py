"""How well a process model finds first errors, every seed beside the other (Markdown)."""

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

from stages.studies import markdown

Metrics = Mapping[str, Any]
FINDERS = {
    "model": "the process model",
    "outcome_and_middle": "no error where the answer is right, else the middle step",
    "always_correct": "no error anywhere",
}


def render(seeds: Mapping[int, Metrics], *, confidence: float) -> str:
    """The report.

    Args:
        seeds: of each, the content of its metrics.json.
        confidence: of the intervals.
    """
    numbers = [f"seed {seed}" for seed in seeds]
    parts = [
        "# First wrong steps",
        verdict(seeds),
        f"F1 of the shares of erroneous and of correct solutions that are told rightly, in "
        f"per cent, with {confidence:.0%} intervals over problems:",
        markdown.table(["found by", "mean", *numbers], _rows(seeds)),
        "Steps up to the first error, where a threshold calls them wrong or right:",
        markdown.table(["steps", *numbers], _steps(seeds)),
        *(f"![seed {seed}](plots/{seed}/step_scores.png)" for seed in seeds),
    ]
    return "\n\n".join(parts) + "\n"


def verdict(seeds: Mapping[int, Metrics]) -> str:
    """Against the best rule that reads no step, in a sentence."""
    told = []
    for name, words in FINDERS.items():
        if name == "model":
            continue
        own = [one[name]["model_f1_minus_this"] for one in seeds.values() if name in one]
        if own:
            above = sum(one["low"] > 0 for one in own)
            gain = 100 * fmean(one["value"] for one in own)
            told.append(f"{gain:+.1f} points over `{words}` (above 0 in {above} seeds)")
    return f"Over {len(seeds)} seeds the process model's F1 is {'; '.join(told)}."


def _rows(seeds: Mapping[int, Metrics]) -> Iterator[list[str]]:
    for name, told in FINDERS.items():
        own = [one[name]["f1"] for one in seeds.values() if name in one]
        if own:
            mean = 100 * fmean(one["value"] for one in own)
            yield [told, f"{mean:.1f}", *map(markdown.percent, own)]


def _steps(seeds: Mapping[int, Metrics]) -> Iterator[list[str]]:
    for name in ("steps", "wrong_share", "balanced_accuracy", "auroc", "brier"):
        own = [one["steps_to_first_error"][name] for one in seeds.values()]
        yield [name.replace("_", " "), *("none" if one is None else f"{one:g}" for one in own)]
    for name in ("solutions", "detected", "found"):
        own = [one["right_answer_wrong_process"].get(name) for one in seeds.values()]
        words = ["none" if one is None else f"{one:g}" for one in own]
        yield [f"right answer, wrong step: {name}", *words]
    own = [one["lowest_is_last"] for one in seeds.values()]
    yield ["lowest score at the last step", *("none" if o is None else f"{o:.3f}" for o in own)]
