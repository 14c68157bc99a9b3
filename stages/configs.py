"""Every entry point's `Config`, and whether params.yaml and the presets of the rows fit it."""

import ast
import functools
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pydantic

from stages import auto, params, tables
from stages.loops.rollout_rewards import check_reward
from stages.params import PRESET, PRESETS_PATH
from stages.records.problems import INSTEAD
from stages.report import evaluation_config
from stages.rewards import reward_file
from stages.rewards.composition import Composition
from stages.rewards.reward_file import RewardFile
from stages.rows import BASE
from stages.tables import POLICIES, POOLS, REWARDS, STAGES, Place, Tables, meant

SOURCES = Path("stages")
DVC_YAML = Path("dvc.yaml")
ANSWERING = (
    "train_dpo", "train_ppo", "train_grpo", "pool", "label_judge", "label_revision",
    "reward_preference", "reward_outcome", "reward_process",
)  # fmt: skip
"""Entry points that are of no use to a model that knows nothing."""
NO_BASE = (
    "model.path is null, and a random model knows nothing: name a model.path, or a policy of "
    "`train: sft`, as the preset 'pretraining' makes one"
)
CHECKING = ("label_verifier", "label_selection", "steps_completions", "reward_outcome")
"""Entry points that ask the answer checker."""
ONLINE = ("grpo", "ppo")
"""`train` of rows that learn from a reward."""

Content = Mapping[str, Any]
"""Of params.yaml, or of presets.yaml."""
Modules = Mapping[str, ModuleType]
"""Entry point -> what defines its `Config`."""


def entry_points(dvc_yaml: Path = DVC_YAML, folder: Path = SOURCES) -> dict[str, ModuleType]:
    """The modules that dvc.yaml runs and that define a `Config`, by name.

    `python -m stages.train_${item.train}` runs every train_*.py.
    """
    commands = re.findall(r"-m stages\.(\w+)(\$\{)?", dvc_yaml.read_text(encoding="utf-8"))
    patterns = [f"{name}*.py" if open_ended else f"{name}.py" for name, open_ended in commands]
    found: dict[str, ModuleType] = {}
    for path in sorted({path for pattern in patterns for path in folder.glob(pattern)}):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        if any(isinstance(node, ast.ClassDef) and node.name == "Config" for node in body):
            found[path.stem] = importlib.import_module(f"stages.{path.stem}")
    return found


def find_problems(content: Content, presets: Content, rows: Tables, modules: Modules) -> list[str]:
    """Everything in params.yaml and presets.yaml that the entry points do not take, each once."""
    read = {name for module in modules.values() for name in module.Config.model_fields}
    known = {*read, *rows, *tables.ABOVE} - {PRESET}
    problems = list(tables.match([str(name) for name in content], sorted(known), ""))
    # Before prepare_data has run, nothing is known of a model but that there will be facts.
    facts = params.measured(content) or auto.UNMEASURED
    asked = {name: content[name] for name in read & content.keys()} | {"presets": presets}
    try:
        content = {**content, **auto.resolve(asked, facts, content, strict=False)[0]}
    except ValueError as error:
        return [*problems, str(error)]
    presets = content.pop("presets")
    places = list(tables.places(rows))
    for place in places:
        found = list(wrong_kind(place, content, presets, modules))
        if not found and place.table != POOLS:
            found = list(wrong_preset(place, content, presets, modules))
        problems += found
    for name in sorted(modules.keys() - {place.entry_point for place in places}):
        problems += validate(modules[name].Config, content, f"stages/{name}.py")
    problems += wrong_rewards(content, presets, rows, modules)
    problems += [*unchecked(content, presets, rows), *tables.separators(presets, rows)]
    problems += evaluation_config.wrong_ks(content)
    return list(dict.fromkeys(problems))


def wrong_kind(place: Place, content: Content, presets: Content, modules: Modules) -> Iterator[str]:
    """No entry point makes the row, or it is asked for what a random model cannot do."""
    if place.entry_point not in modules:
        key, stage = ("train" if place.table == POLICIES else "by"), f"{STAGES[place.table]}_"
        kinds = [name.removeprefix(stage) for name in modules if name.startswith(stage)]
        what = f"there is no {f'stages/{place.entry_point}.py'!a:.103}"
        yield f"{place}.{key}: {what}{meant(place.words.get(key, ''), kinds)}"
    model = content.get("model")
    untrained = isinstance(model, dict) and model.get("path") is None
    preset = presets.get(place.words.get(PRESET, ""))
    judge = preset.get("judge") if isinstance(preset, dict) else None
    elsewhere = isinstance(judge, dict) and judge.get("kind") == "endpoint"
    from_base = place.words["from"] == BASE and not elsewhere
    if place.entry_point in ANSWERING and from_base and untrained:
        yield f"{place}.from: {NO_BASE}"


def wrong_preset(
    place: Place, content: Content, presets: Content, modules: Modules
) -> Iterator[str]:
    """The preset is not there, is another kind's, or does not go with the sizes."""
    config, name = modules[place.entry_point].Config, place.words[PRESET]
    if name not in presets or not fits(config, presets[name]):
        known = [one for one in presets if fits(config, presets[one])]
        if name not in presets:
            yield f"{place}.preset: {PRESETS_PATH} has no {name!a:.103}{meant(name, known)}"
            return
        if users := [user for user, one in modules.items() if fits(one.Config, presets[name])]:
            yield (
                f"{place}.preset: '{name}' is a preset of {' and '.join(users)}; those of "
                f"{place.entry_point} are {', '.join(known) or 'none'}"
            )
            return
    read = {**content, PRESET: presets[name]}
    yield from validate(config, read, str(place), f"{PRESETS_PATH}: {name}")


def wrong_rewards(
    content: Content, presets: Content, rows: Tables, modules: Modules
) -> Iterator[str]:
    """Rules that do not name what they ask, and policies whose preset does not fit their reward.

    The stages refuse this too. A preset that is wrong in itself has been told before.
    """
    rewards: dict[str, RewardFile] = {}
    for name in rows[REWARDS]:
        try:
            if (reward := describe(name, presets, rows)) is not None:
                rewards[name] = reward
        except pydantic.ValidationError:
            continue
        except ValueError as error:
            yield f"{REWARDS}.{name}: {error}"
    for name, words in rows[POLICIES].items():
        method, reward = words["train"], rewards.get(words["on"].partition("/")[2])
        module = modules.get(f"train_{method}")
        if method not in ONLINE or reward is None or module is None:
            continue
        try:
            picked = pick(module.Config, {**content, PRESET: presets.get(words[PRESET])})
            config = module.Config.model_validate(picked)
            check_reward(getattr(config, method), config.preset, reward)
        except pydantic.ValidationError:
            continue
        except ValueError as error:
            yield f"{POLICIES}.{name}: {error}"


def unchecked(content: Content, presets: Content, rows: Tables) -> Iterator[str]:
    """Rows that ask whether an answer is right, of a source without gold answers."""
    data = content.get("data")
    source = data.get("source") if isinstance(data, dict) else None
    if not isinstance(source, dict) or source.get("kind") != "messages":
        return
    for place in tables.places(rows):
        preset = presets.get(place.words.get(PRESET, ""))
        parts = preset.get("components") if isinstance(preset, dict) else None
        values = [one.get("value") for one in (parts or {}).values() if isinstance(one, dict)]
        positive = preset.get("positive_nll_coef") if isinstance(preset, dict) else None
        if place.entry_point in CHECKING or {"kind": "answer"} in values or positive:
            yield f"{place}: it learns from right and wrong answers, and {INSTEAD}"


def describe(name: str, presets: Content, rows: Tables) -> RewardFile | None:
    """What the stage will write of a reward, without digests; None where nothing can be said."""
    words = rows[REWARDS].get(name)
    if words is None or words["by"] not in ("rule", "preference", "outcome", "process"):
        return None
    if words["by"] != "rule":
        return reward_file.of_model(words["by"])  # pyright: ignore[reportArgumentType]
    composition = Composition.model_validate(presets.get(words[PRESET]))
    reward_file.check_source(composition, words["on"])
    model = "policy" if composition.needs_judge() else None
    if composition.needs_model() and model is None:
        other = describe(words["on"].removeprefix(reward_file.OTHER), presets, rows)
        if other is None:
            return None
        model = other.model
    return RewardFile(
        kind="rule", model=model, composition=composition, aggregate=reward_file.MEAN,
        own=words["on"].removeprefix(reward_file.OWN) if "own" in composition.kinds() else None,
        own_digest=None,
    )  # fmt: skip


def fits(config: type[pydantic.BaseModel], preset: Any) -> bool:
    """Whether `preset` is one of this configuration."""
    if PRESET not in config.model_fields:
        return False
    try:
        preset_of(config).validate_python(preset)
    except pydantic.ValidationError:
        return False
    return True


@functools.cache
def preset_of(config: type[pydantic.BaseModel]) -> Any:
    """The TypeAdapter of its presets; to build one is slow."""
    return pydantic.TypeAdapter(config.__annotations__[PRESET])


def pick(config: type[pydantic.BaseModel], content: Content) -> dict[str, Any]:
    """The sections that it names."""
    return {name: content[name] for name in config.model_fields if name in content}


def validate(
    config: type[pydantic.BaseModel], content: Content, whole: str, preset: str = PRESET
) -> Iterator[str]:
    """What is wrong, an unknown key and the missing one that it is meant for as one mistake.

    `whole`: the place of sections that do not go together; `preset`: that of the preset.
    """
    unknown, missing = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    try:
        config.model_validate(pick(config, content))
    except pydantic.ValidationError as error:
        for item in error.errors():
            place = list(params.written(item, content)) or [whole]
            *parents, name = [preset, *place[1:]] if place[0] == PRESET else place
            parent = "".join(f"{part}." for part in parents)
            if item["type"] == "extra_forbidden":
                unknown[parent].append(name)
            elif item["type"] == "missing":
                # A whole section that is missing is told once, not by each of its readers.
                if parents:
                    missing[parent].append(name)
            elif item["input"] == auto.AUTO:
                yield f"{parent}{name}: {auto.NO_RULE}"
            else:
                yield f"{parent}{name}: {params.said(item)}"
    for parent in sorted(unknown.keys() | missing.keys()):
        yield from tables.match(unknown[parent], missing[parent], parent)
