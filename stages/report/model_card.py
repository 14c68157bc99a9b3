"""A policy's model card: Markdown with a YAML header, as Hugging Face reads them.

The header has what their hub indexes (https://huggingface.co/docs/hub/model-cards); the sections
follow Mitchell et al. 2019, "Model Cards for Model Reporting" (https://arxiv.org/abs/1810.03993),
as far as facts are known; the words are in model_card.md.j2. The card depends only on its inputs,
not on time or machine.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.report import markdown
from stages.report.evaluation_config import CUT
from stages.report.experiment import shorten_path
from stages.report.stage_metrics import COSTS, list_ancestors
from stages.rewards.pool_scores import WITHOUT_A_REWARD
from stages.rows import DATA
from stages.runtime import outputs

Metrics = Mapping[str, Any]

ACCURACY = "mean_accuracy"
METHODS = {
    "sft": "supervised fine-tuning",
    "dpo": "direct preference optimisation on pairs, or a variant of it (see the preset)",
    "ppo": "proximal policy optimisation on its own rollouts",
    "grpo": "group-relative policy optimisation on its own rollouts",
}
SHOWN = re.compile(
    r"(mean|greedy|dev)_accuracy|(pass|majority|best_of|reward)/.+|(readable|truncation)_rate"
    r"|mean_tokens"
)
"""Metrics of an evaluation on the card; the report has them all."""
LICENCES = ("apache-2.0", "mit", "cc-by-4.0", "cc-by-sa-4.0", "cc0-1.0")
"""Names that the hub knows; any other licence is `other`, with its own words."""


def render_card(
    name: str, seeds: Sequence[int], model: Metrics, presets: Metrics, section: str
) -> str:  # fmt: skip
    """Model card of the policy `name`, over all its seeds.

    `model` is the section of params.yaml, `presets` has the entries of presets.yaml by name;
    `section` is the Markdown that follows the results.
    """
    plan = outputs.read_json(DATA / "plan.json")
    row, data = plan["policies"][name], outputs.read_json(DATA / "prepared/data_card.json")
    evaluation, training = (
        {seed: outputs.read_json(folder / f"{seed}/metrics.json") for seed in seeds}
        if folder.exists() else {}
        for folder in (DATA / f"evaluations/{name}", DATA / f"policies/{name}/training")
    )  # fmt: skip
    if any(key.startswith(CUT) for metrics in evaluation.values() for key in metrics):
        evaluation = {}
    parents = [f"`{parent}`" for parent in list_ancestors(plan, f"policies/{name}")][:-1]
    return markdown.render_template(
        Path(__file__).with_name("model_card.md.j2"),
        name=name, model=model, data=data, row=row, section=section, source=_list_sources(data),
        base=model["path"] and shorten_path(model["path"]),
        has_golds=all(ACCURACY in metrics for metrics in evaluation.values()),
        seeds=seeds, evaluation=evaluation, inline=_inline, method=METHODS[row["train"]],
        licence=_find_licence(data["licence"]), accuracies=_list_accuracies(evaluation),
        is_of_hub=model["path"] is not None and not Path(model["path"]).is_dir(),
        parents=", ".join(parents) or "nothing but the base model",
        presets=presets,
        header_of_results=["", "mean", *(f"seed {seed}" for seed in seeds)],
        results=list(_results(evaluation)),
        cost=[", ".join(f"{metrics[key]:,}" for metrics in training.values()) for key in COSTS[:2]],
    )  # fmt: skip


def list_presets(plan: Metrics, name: str) -> dict[str, str]:
    """Preset -> the row that has it: of a policy, its reward and its environment."""
    row = plan["policies"][name]
    places = [f"policies/{name}", row["on"], f"environments/{find_environment(plan, row)}"]
    rows = [(place, *place.partition("/")[::2]) for place in places]
    return {
        plan[table][key]["preset"]: place for place, table, key in rows
        if table in ("policies", "rewards", "environments") and key in plan.get(table, {})
    }  # fmt: skip


def find_environment(plan: Metrics, row: Metrics) -> str | None:
    """The environment that a row learned in, or from episodes of; None: there is none."""
    table, _, name = row.get("on", "").partition("/")
    if table == "environments":
        return name
    is_row = table in ("episodes", "pairs") and name in plan.get(table, {})
    return find_environment(plan, plan[table][name]) if is_row else None


def _find_licence(licence: str | None) -> str:
    """The hub's name of a licence; `unknown` and `other` are its own words."""
    word = (licence or "unknown").split(" ", maxsplit=1)[0].lower()
    return word if word in LICENCES or not licence else "other"


def _list_accuracies(evaluation: Mapping[int, Metrics]) -> list[tuple[str, float]]:
    return [
        (label, _mean(key, evaluation))
        for key, label in (("greedy_accuracy", "greedy decoding"), (ACCURACY, "one sample"))
        if evaluation and all(key in metrics for metrics in evaluation.values())
    ]


def _list_sources(data: Metrics) -> str:
    return ", ".join(map(shorten_path, data["source"].split(", ")))


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_inline(item)}' for key, item in value.items())}}}"
    return json.dumps(value) if isinstance(value, bool) or value is None else str(value)


def _results(seeds: Mapping[int, Metrics]) -> Iterator[list[str]]:
    """Metrics on the card, with each seed's value; of a curve over n, at the largest n.

    Of best-of-n, only choices by reward models, none by the samples' form.
    """
    if not seeds:
        return
    first, *following = seeds.values()
    curves = [key.rpartition("/") for key in first]
    largest = dict(sorted((stem, int(n)) for stem, _, n in curves if n.isdecimal()))
    for key, value in first.items():
        stem, _, n = key.rpartition("/")
        smaller = n.isdecimal() and int(n) < largest[stem]
        is_common = all(key in metrics for metrics in following)
        matters = SHOWN.fullmatch(key) and not {*WITHOUT_A_REWARD} & {*stem.split("/")}
        if isinstance(value, float) and matters and not smaller and is_common:
            numbers = [f"{metrics[key]:.3f}" for metrics in seeds.values()]
            yield [key.replace("_", " ").replace("/", ", "), f"{_mean(key, seeds):.3f}", *numbers]


def _mean(key: str, seeds: Mapping[int, Metrics]) -> float:
    return round(sum(metrics[key] for metrics in seeds.values()) / len(seeds), 6)
