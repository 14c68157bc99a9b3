"""A policy's model card: Markdown with a YAML header, as Hugging Face reads them.

The header has what their hub indexes (https://huggingface.co/docs/hub/model-cards); the sections
follow Mitchell et al. 2019, "Model Cards for Model Reporting" (https://arxiv.org/abs/1810.03993),
as far as something is known. Everything comes from files that DVC tracks: equal inputs, equal card.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.compat import StringIO

from stages.studies import markdown
from stages.studies.probe_catalogue import PROBES

Metrics = Mapping[str, Any]

PRESET_TABLES = {
    "train_sft": "sft",
    "train_dpo": "preference",
    "train_ppo": "ppo",
    "train_grpo": "group_rl",
}
METHODS = {
    "train_sft": "supervised fine-tuning",
    "train_dpo": "direct preference optimisation on pairs, or a variant of it (see the preset)",
    "train_ppo": "proximal policy optimisation on its own rollouts",
    "train_grpo": "group-relative policy optimisation on its own rollouts",
}
LICENCES = ("apache-2.0", "mit", "cc-by-4.0", "cc-by-sa-4.0", "cc0-1.0")
"""Names that the hub knows; any other licence is `other`, with its own words."""


def render(
    name: str,
    made_by: str,
    *,
    entry: Metrics,
    parents: Sequence[str],
    tables: Metrics,
    model: Metrics,
    data: Metrics,
    training: Metrics,
    evaluation: Metrics,
    probes: Metrics,
    gate: Metrics | None,
    verdict: str,
) -> str:
    """The card.

    Args:
        name: the policy's, in reports.
        made_by: the entry that trained it.
        entry: the words of that entry.
        parents: the entries that it was made from, the first made first.
        tables: the presets' sections.
        model: the section `model`.
        data: the data card.
        training: metrics.json of `made_by`.
        evaluation: of evaluate_policy.
        probes: of probe_policy.
        gate: of `probe_gate.compare`; None for the baseline.
        verdict: of `probe_gate.verdict`.
    """
    stage = made_by.split("/", maxsplit=1)[0]
    parts = [
        "---\n" + _yaml(_header(name, model, data, evaluation)) + "---",
        f"# {name}",
        f"{_what(model)}, trained by {METHODS[stage]} (`{made_by}`). The checkpoint is the folder "
        f"`policy` beside this file; weights are safetensors, and no code comes with them.",
        "## Data",
        _data(data),
        "## Parents",
        "Made from, in this order (an entry of the recipe each): "
        + (", ".join(f"`{parent}`" for parent in parents) or "nothing but the base model")
        + ".",
        "## Parameters",
        f"Entry: `{_inline(entry)}`",
        *_presets(stage, entry, tables),
        "## Results",
        f"{evaluation['num_problems']} test problems that no policy learned from. In brackets "
        "intervals over problems.",
        markdown.table(["", "value"], [[label, text] for label, text in _results(evaluation)]),
        f"On {probes['dev_accuracy']['problems']} dev problems, by which the best policy is "
        f"chosen: {markdown.percent(probes['dev_accuracy'])} of single samples are right.",
        "## Probes and release gate",
        verdict,
        markdown.table(["probe", "value", "against the baseline"], _probes(probes, gate)),
        _unmeasured(probes, gate),
        "## Cost",
        _cost(training),
        "## Limits",
        _limits(data, model),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _header(name: str, model: Metrics, data: Metrics, evaluation: Metrics) -> dict[str, Any]:
    known = str(data["licence"]).split(" ")[0].lower()
    licence: dict[str, Any] = (
        {"license": known}
        if known in LICENCES
        else {"license": "other", "license_name": data["licence"]}
    )
    parent = {"base_model": model["path"]} if model["path"] is not None else {}
    results = [
        {"type": "accuracy", "name": label, "value": evaluation[key]["value"]}
        for key, label in (
            ("greedy_accuracy", "greedy decoding"),
            ("mean_accuracy", "one sample"),
        )
        if key in evaluation
    ]
    dataset = {"name": f"{data['source']}, test split", "type": data["source"], "split": "test"}
    task = {"type": "text-generation"}
    return (
        licence
        | parent
        | {
            "language": ["en"],
            "library_name": "transformers",
            "pipeline_tag": "text-generation",
            "tags": ["posttrain"],
            "model-index": [
                {
                    "name": name,
                    "results": [{"task": task, "dataset": dataset, "metrics": results}],
                }
            ],
        }
    )


def _yaml(content: Mapping[str, Any]) -> str:
    stream = StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # pyright: ignore[reportAttributeAccessIssue]
    yaml.dump(dict(content), stream)
    return stream.getvalue()


def _what(model: Metrics) -> str:
    if model["path"] is not None:
        revision = f" at `{model['revision']}`" if model["revision"] else ""
        return f"A causal language model that began as `{model['path']}`{revision}"
    tiny = model["tiny"]
    return (
        f"A Llama of {tiny['num_layers']} layers of {tiny['hidden_size']}, with a vocabulary of at "
        f"most {tiny['vocab_size']} that began with random weights"
    )


def _data(data: Metrics) -> str:
    counts = ", ".join(f"{name} {count:,}" for name, count in data["counts"].items())
    shared = {pair: count for pair, count in data["overlaps"].items() if count}
    overlap = (
        "; ".join(f"{count} questions are in both of {pair}" for pair, count in shared.items())
        if shared
        else "no question is in two splits"
    )
    return (
        f"Source: `{data['source']}`. Licence of the source: {data['licence']}. Problems by split: "
        f"{counts}; {overlap}. The policy's own completions, and labels of them, where a parent "
        f"made any, are of these problems too."
    )


def _presets(stage: str, entry: Metrics, tables: Metrics) -> Iterator[str]:
    name = entry["preset"]
    yield f"Preset `{name}`: `{_inline(tables[PRESET_TABLES[stage]][name])}`"
    if "reward" in entry:
        yield f"Reward `{entry['reward']}`: `{_inline(tables['rewards'][entry['reward']])}`"


def _inline(content: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {_inline_value(value)}" for key, value in content.items()) + "}"


def _inline_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return _inline(value)
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _results(metrics: Metrics, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every number with an interval; of a curve over n the largest n."""
    for key, value in metrics.items():
        if not isinstance(value, Mapping):
            continue
        label = f"{prefix}{key.replace('_', ' ')}"
        if "value" in value:
            yield label, markdown.number(value)
        elif value and all(str(inner).isdigit() for inner in value):
            n = max(value, key=int)
            yield from _results({f"{label} {n}": value[n]})
        else:
            yield from _results(value, f"{label}, ")


def _probes(probes: Metrics, gate: Metrics | None) -> Iterator[list[str]]:
    compared = (gate or {"probes": {}})["probes"]
    for probe, own in probes["probes"].items():
        definition = PROBES[probe]
        show = markdown.percent if definition.is_rate else markdown.number
        against = ""
        if probe in compared:
            one = compared[probe]
            against = f"{one['difference']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]"
            against = f"**{against}, worse**" if one["worse"] else against
        yield [definition.what, show(own), against]


def _unmeasured(probes: Metrics, gate: Metrics | None) -> str:
    reasons: dict[str, list[str]] = {}
    told = probes["not_run"] | {
        probe: f"not compared: {why}"
        for probe, why in (gate or {"not_compared": {}})["not_compared"].items()
        if probe in probes["probes"]
    }
    for probe, why in told.items():
        reasons.setdefault(why, []).append(probe)
    return "\n".join(
        f"- Not run: {', '.join(own)}: {why}." for why, own in reasons.items()
    ).replace("Not run: ", "Without a result: ")


def _cost(training: Metrics) -> str:
    return (
        f"This training: {training['generated_tokens']:,} tokens generated, "
        f"{training['trained_tokens']:,} trained on (each time it was). What its parents cost "
        f"is in their cards and, with seconds, in `data/compare_policies/report.md`."
    )


def _limits(data: Metrics, model: Metrics) -> str:
    lines = [
        f"Measured on problems of `{data['source']}` alone, unless the probes above name another "
        f"source; of other tasks, languages and lengths nothing is known.",
        "Right means the final answer: wrong steps that end in the right number count as right.",
        "The probes name known ways of gaming a reward; a policy may have found another.",
    ]
    if model["path"] is None:
        lines.append("A small model made to try methods on; of no use beyond its task.")
    return "\n".join(f"- {line}" for line in lines)
