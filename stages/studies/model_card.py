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

METHODS = {
    "sft": "supervised fine-tuning",
    "dpo": "direct preference optimisation on pairs, or a variant of it (see the preset)",
    "ppo": "proximal policy optimisation on its own rollouts",
    "grpo": "group-relative policy optimisation on its own rollouts",
}
LICENCES = ("apache-2.0", "mit", "cc-by-4.0", "cc-by-sa-4.0", "cc0-1.0")
"""Names that the hub knows; any other licence is `other`, with its own words."""


def render(
    name: str,
    *,
    row: Metrics,
    parents: Sequence[str],
    presets: Metrics,
    model: Metrics,
    data: Metrics,
    training: Mapping[int, Metrics],
    evaluation: Mapping[int, Metrics],
    probes: Metrics,
    gate: Metrics | None,
    verdict: str,
) -> str:
    """The card.

    Args:
        name: the policy's.
        row: of params.yaml.
        parents: the rows that it was made from, the first made first.
        presets: of it and of its reward.
        model: the section `model`.
        data: the data card.
        training: metrics.json of each seed's training.
        evaluation: of each seed's evaluation.
        probes: of `probe_gate.summarise`, with the accuracy on dev.
        gate: of `probe_gate.compare`; None for the baseline.
        verdict: of `probe_gate.verdict`.
    """
    seeds = list(evaluation)
    parts = [
        "---\n" + _yaml(_header(name, model, data, evaluation)) + "---",
        f"# {name}",
        f"{_what(model)}, trained by {METHODS[row['train']]}, once with each of the seeds "
        f"{', '.join(map(str, seeds))}. The checkpoints are `data/policies/{name}/model/<seed>`; "
        f"weights are safetensors, and no code comes with them.",
        "## Data",
        _data(data),
        "## Parents",
        "Made from, in this order (a row of params.yaml each): "
        + (", ".join(f"`{parent}`" for parent in parents) or "nothing but the base model")
        + ".",
        "## Parameters",
        f"Row: `{_inline(row)}`",
        *(f"Preset `{word}`: `{_inline(content)}`" for word, content in presets.items()),
        "## Results",
        f"{evaluation[seeds[0]]['num_problems']} test problems that no policy learned from.",
        markdown.table(["", "mean", *(f"seed {seed}" for seed in seeds)], _results(evaluation)),
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


def _header(
    name: str, model: Metrics, data: Metrics, evaluation: Mapping[int, Metrics]
) -> dict[str, Any]:
    known = str(data["licence"]).split(" ")[0].lower()
    licence: dict[str, Any] = (
        {"license": known}
        if known in LICENCES
        else {"license": "other", "license_name": data["licence"]}
    )
    parent = {"base_model": model["path"]} if model["path"] is not None else {}
    results = [
        {"type": "accuracy", "name": label, "value": mean(key, evaluation)}
        for key, label in (
            ("greedy_accuracy", "greedy decoding, mean of the seeds"),
            ("mean_accuracy", "one sample, mean of the seeds"),
        )
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


def _inline(content: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {_inline_value(value)}" for key, value in content.items()) + "}"


def _inline_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return _inline(value)
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _results(seeds: Mapping[int, Metrics]) -> Iterator[list[str]]:
    """Every number that all seeds have, with each seed's; of a curve over n the largest n."""
    first, *rest = seeds.values()
    largest: dict[str, int] = {}
    for key in first:
        stem, _, n = key.rpartition("/")
        if n.isdecimal():
            largest[stem] = max(int(n), largest.get(stem, 0))
    for key, value in first.items():
        stem, _, n = key.rpartition("/")
        smaller = n.isdecimal() and int(n) < largest[stem]
        if isinstance(value, float) and not smaller and all(key in one for one in rest):
            label = key.replace("_", " ").replace("/", ", ")
            own = [f"{one[key]:.3f}" for one in seeds.values()]
            yield [label, f"{mean(key, seeds):.3f}", *own]


def mean(key: str, seeds: Mapping[int, Metrics]) -> float:
    """Of a number over seeds."""
    return round(sum(one[key] for one in seeds.values()) / len(seeds), 6)


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


def _cost(training: Mapping[int, Metrics]) -> str:
    generated, trained = (
        ", ".join(f"{one[name]:,}" for one in training.values())
        for name in ("generated_tokens", "trained_tokens")
    )
    return (
        f"This training, of each seed: {generated} tokens generated, {trained} trained on (each "
        f"time it was). What it was made from cost, and seconds, are in `data/report/report.md`."
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
