"""Facts of a comparison: model, data, methods with sizes, versions, and the way to the commit.

All follow from the inputs of `compare`, except the commit, which cannot be in the report: a commit
has dvc.lock, which has the digest of the report. Instead, the report names the digest of the
evaluations in dvc.lock, by which git finds the commits and their dates. Machine, Python and
installed versions are in the run records, data/runs.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from stages.records.metrics import read_metrics
from stages.report.stage_metrics import History, Plan
from stages.report.tables import Rows
from stages.report.verdict import join_words
from stages.runtime import outputs

CONSTRAINTS = Path("constraints.txt")
"""Pinned versions; a dependency of every stage by way of `trace_code`."""
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "scipy")
"""Packages whose version can change a number, besides vLLM if it samples."""
SPLITS = ("train", "preference", "dev", "test")
LEARNING_RATE = "optim/learning_rate"
WORDS = ("train", "preset", "from", "on", "control")
"""Keys of a row of the table of policies that are not sizes."""
SIZES = "sizes of its own"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Facts in the head of the report, and the table of methods."""

    facts: dict[str, str]
    """Label -> text."""
    methods: Rows
    """One row per policy, the baseline first."""

    @property
    def title(self) -> str:
        """Title of the page: names of model and data, without sizes and origin."""
        model = self.facts["Model"].partition(", ")[0].partition(" in ")[0]
        return f"Post-training compared: {model} on {self.facts['Data'].partition(': ')[0]}"


def read_experiment(
    data: Path,
    plan: Plan,
    baseline: str,
    seeds: Sequence[int],
    *,
    histories: Mapping[str, History],
    model: Mapping[str, Any],
    engine: str,
) -> Experiment:
    """Facts of a finished run below `data`; `model` and `engine`: keys of params.yaml."""
    card = outputs.read_json(data / "prepared/data_card.json")
    training = data / "policies" / baseline / "training"
    model_path = data / "policies" / baseline / "model" / str(seeds[0])
    packages = [*PACKAGES, "vllm"] if engine == "vllm" else PACKAGES
    return Experiment(
        facts={
            "Model": describe_model(
                model,
                config=outputs.read_json(model_path / "config.json"),
                size=read_metrics(training, seeds)[seeds[0]]["work"]["policy"],
                origin=card.get("model"),
            ),
            "Data": describe_data(card),
            "Seeds": join_words(map(str, seeds)),
            "Versions": describe_versions(CONSTRAINTS.read_text(encoding="utf-8"), packages),
            "Commit": describe_commit(digest_folder(data / "evaluations")),
        },
        methods=[
            {
                "policy": name,
                **tabulate_method(
                    plan["policies"][name],
                    history,
                    read_metrics(data / "policies" / name / "training", seeds),
                ),
            }
            for name, history in histories.items()
        ],
    )


def describe_model(
    model: Mapping[str, Any], *, config: Mapping[str, Any], size: Mapping[str, int],
    origin: Mapping[str, Any] | None = None,
) -> str:  # fmt: skip
    """Name, architecture, parameters, layers and origin; with LoRA, the numbers it adds and trains.

    `origin`: entry of the data card, with the files of the weights and their quantisation.
    """
    path, quantisation = model["path"], (origin or {}).get("quantisation")
    architecture = (config.get("architectures") or ["model"])[0].removesuffix("ForCausalLM")
    layers = config.get("num_hidden_layers") or config.get("n_layer")
    trained, parameters = size["trained_parameters"], size["parameters"]
    is_lora = trained < parameters
    text = f"{architecture} of {parameters - is_lora * trained:,} parameters"
    text += f" in {layers} layers" if layers else ""
    lora = f"; LoRA trains {trained:,} more" if is_lora else ""
    if not path:
        return f"{text}, trained from scratch{lora}"
    revision = f", revision {model['revision']}" if model.get("revision") else ""
    if not quantisation:
        return f"{shorten_path(path)}{revision}, a {text}{lora}"
    ((file, digest),) = origin["files"].items()  # pyright: ignore[reportOptionalSubscript]
    name = Path(file).stem.removesuffix(f".{quantisation}")
    return (
        f"{name}, a {text}, converted from {quantisation} in `{shorten_path(path)}` (SHA-256 "
        f"{digest:.12}){lora}"
    )


def describe_data(card: Mapping[str, Any]) -> str:
    """Source, and size of each split, from the data card."""
    source = ", ".join(map(shorten_path, card["source"].split(", ")))
    counts = card["counts"]
    sizes = join_words(f"{counts[split]:,} {split}" for split in SPLITS if split in counts)
    quarantined = sum(card["quarantined"].values())
    quarantine = f", {quarantined:,} rows quarantined" if quarantined else ""
    return f"{source}: {sizes} prompts, {counts['demonstrations']:,} demonstrations{quarantine}"


def shorten_path(path: str) -> str:
    """A relative path or a hub id; of an absolute path only the name, not the user's folders."""
    return Path(path).name if Path(path).is_absolute() else path


def describe_versions(constraints: str, packages: Sequence[str]) -> str:
    """Pinned versions of these packages."""
    pins = dict(line.split("==", 1) for line in constraints.splitlines() if "==" in line)
    pinned = [f"{name} {pins[name].split()[0]}" for name in packages if name in pins]
    return f"{join_words(pinned)}, as pinned in `constraints.txt`"


def describe_commit(digest: str) -> str:
    """Command that finds the commit whose dvc.lock first had these evaluations, and its date."""
    command = f"git log --reverse -S {digest} --format='%h %cs' -- dvc.lock"
    return f"first line of `{command}`: the commit, with its date, that first had these evaluations"


def digest_folder(folder: Path) -> str:
    """DVC's digest of a folder, as in dvc.lock: of its files' digests, sorted by path."""
    md5 = partial(hashlib.md5, usedforsecurity=False)
    files = {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }
    entries: list[dict[str, str]] = []
    for name in sorted(files):
        with files[name].open("rb") as file:
            entries.append({"md5": hashlib.file_digest(file, md5).hexdigest(), "relpath": name})
    return f"{md5(json.dumps(entries, sort_keys=True).encode()).hexdigest()}.dir"


def tabulate_method(
    row: Mapping[str, Any], history: History, metrics: Mapping[int, Mapping[str, Any]]
) -> dict[str, str]:
    """Cells of one policy: its row in params.yaml, and the results of its training.

    Args:
        row: Its words, and its values for keys of its section.
        history: Metrics of each step.
        metrics: Seed -> its metrics.json.
    """
    steps = [len(of_seed) for of_seed in history]
    rate = max((step.get(LEARNING_RATE, 0.0) for seed in history for step in seed), default=0.0)
    tokens = {
        label: fmean(of_seed.get(key, 0) for of_seed in metrics.values())
        for label, key in (
            ("tokens trained on", "trained_tokens"), ("tokens generated", "generated_tokens"),
        )
    }  # fmt: skip
    low, high = min(steps), max(steps)
    sizes = [f"{key}: {json.dumps(value)}" for key, value in row.items() if key not in WORDS]
    return {
        "method": row["train"].upper(), "preset": row["preset"], "from": row["from"],
        "on": row["on"], **({SIZES: ", ".join(sizes)} if sizes else {}),
        "steps": f"{low:,}" if low == high else f"{low:,} to {high:,}",
        "learning rate": f"{rate:.3g}" if rate else "",
        **{label: f"{count:,.0f}" for label, count in tokens.items()},
    }  # fmt: skip
