"""Checks that params.yaml and the presets of its rows fit the `Config` of every entry point."""

import ast
import importlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import pydantic

from stages import auto, own_modules, source_checks
from stages.config import (
    PRESET,
    PRESETS_PATH,
    Params,
    error_messages,
    match_keys,
    merge,
    pick_sections,
    suggest,
)
from stages.environments.catalogue import METHODS, TAKE_ROW
from stages.environments.definition import FOLDER, EnvironmentPreset, Starts
from stages.loops import episodes, sft, teacher
from stages.loops.epochs import endless_batches
from stages.loops.rollout_rewards import check_reward
from stages.params import measured_facts
from stages.report import evaluation_config
from stages.rewards import components, reward_file
from stages.rewards.reward_file import RewardFile
from stages.rows import BASE, ENTRY_POINTS
from stages.tables import (
    ENVIRONMENTS,
    GLOBAL_KEYS,
    OWN_SOURCES,
    PAIRS,
    REWARDS,
    TableRow,
    Tables,
    describe_absence,
    list_rows,
)

NEEDS_TRAINED = (
    "train_dpo", "train_ppo", "train_grpo", "pool", "label_judge", "label_revision",
    "reward_preference", "reward_outcome", "reward_process",
)  # fmt: skip
"""Entry points that need trained weights: random ones make them useless."""
RANDOM_BASE = (
    "model.path is null, and a random model knows nothing: name a model.path, or a policy of "
    "`train: sft`, as the preset 'pretraining' makes one"
)
Content = Mapping[str, Any]
"""Content of params.yaml, or of presets.yaml."""
EntryPoints = Mapping[str, type[Params]]
"""Entry point -> its `Config`."""
WITHOUT_ROWS = ("prepare_data", "compare")
"""Stages that read params.yaml and that no row makes."""
Configs = dict[str, Any]
"""Row, as `policies.sft`, or stage without rows -> its `Config`; only valid ones."""


def load_entry_points() -> dict[str, type[Params]]:
    """`Config` of every entry point that reads params.yaml, sorted by name."""
    configs: dict[str, type[Params]] = {}
    for name in sorted([*ENTRY_POINTS, *WITHOUT_ROWS]):
        module = importlib.import_module(f"stages.{ENTRY_POINTS.get(name, name)}")
        configs[name] = module.CONFIGS[name] if hasattr(module, "CONFIGS") else module.Config
    return configs


def find_problems(
    params: Content, presets: Content, tables: Tables, entry_points: EntryPoints
) -> list[str]:
    """Errors in params.yaml and the presets of its rows, by the entry points' `Config`s, each once.

    A preset that no row names is not checked: no entry point reads it.
    """
    fields = {name for config in entry_points.values() for name in config.model_fields}
    declared = sorted({*fields, *tables, *GLOBAL_KEYS} - {PRESET})
    problems = list(match_keys([str(name) for name in params], declared, ""))
    # Before prepare_data has run, the facts of the model are unknown.
    measured, whole = measured_facts(params), {**params, "presets": presets}
    facts = measured or auto.UNMEASURED
    try:
        content, _ = auto.resolve(whole, facts, strict=False)
    except ValueError as error:
        return [*problems, str(error)]
    presets, configs, rows = content.pop("presets"), Configs(), list(list_rows(tables))
    for row in rows:
        wrong = list(check_override_keys(str(row), row.overrides, params.get(row.kind)))
        config, name = entry_points[row.entry_point], row.words.get(PRESET, "")
        if name and name not in presets:
            remedy = suggest(name, presets, otherwise=": add it, or name another")
            wrong.append(f"{row}.preset: {PRESETS_PATH} has no {name!a:.103}{remedy}")
        if wrong:
            problems += wrong
            continue
        of_row = {**content, PRESET: presets.get(name)}
        if row.overrides:  # values of `auto` may depend on them
            try:
                of_row, _ = auto.resolve(
                    merge(whole, {row.kind: row.overrides}), facts, strict=False
                )
            except ValueError as error:
                problems.append(f"{row}: {error}")
                continue
            of_row[PRESET] = of_row.pop("presets").get(name)
        places = {"": str(row), PRESET: f"{PRESETS_PATH}: {name}"}
        places |= {row.kind: str(row)} if row.overrides else {}
        configs[str(row)], wrong = validate(config, of_row, places)
        if any(line.startswith(places[PRESET]) for line in wrong):
            users = [user for user in entry_points if fits(entry_points[user], presets[name])]
            if users and row.entry_point not in users:
                wrong = [
                    f"{row}.preset: '{name}' is a preset of {' and '.join(users)}: name one of "
                    f"{row.entry_point}"
                ]
        problems += wrong
    for name in sorted(entry_points.keys() - {row.entry_point for row in rows}):
        places = {"": f"stages/{ENTRY_POINTS.get(name, name)}.py"}
        configs[name], wrong = validate(entry_points[name], content, places)
        problems += wrong
    configs = {place: config for place, config in configs.items() if config is not None}
    prepare = configs.get("prepare_data")
    source = source_checks.look_at_source(prepare.data.source) if prepare is not None else None
    positions = None if measured is None else measured.positions
    if prepare is not None and prepare.model.path is None:
        positions = prepare.model.tiny.max_length
    for row in rows:
        if (config := configs.get(str(row))) is not None:
            if row.table == ENVIRONMENTS:
                problems += check_environment(row, config.preset, positions)
                problems += check_options(row, config.preset)
            problems += check_row(row, config, content, configs, tables)
            if source is not None:
                problems += source_checks.check_row(row, config, source)
    problems += [] if source is None else source.problems
    problems += evaluation_config.check_ks(content)
    return list(dict.fromkeys(problems))


def check_override_keys(place: str, overrides: Content, section: Any) -> Iterator[str]:
    """Errors: keys of a row that are neither words of rows nor keys of its section."""
    keys = section if isinstance(section, Mapping) else {}
    for key, value in overrides.items():
        if key not in keys:
            remedy = suggest(key, [str(name) for name in keys])
            yield f"{place}.{ascii(key)[1:-1]:.100}: unknown key{remedy}"
        elif isinstance(value, Mapping):
            yield from check_override_keys(f"{place}.{key}", value, keys[key])


def fits(config: type[Params], preset: Any) -> bool:
    """Whether `preset`, which has no `auto`, is valid for the entry point with this `Config`."""
    try:
        config.model_validate({PRESET: preset})
    except pydantic.ValidationError as error:  # the other fields are missing, too
        return all(item["loc"][:1] != (PRESET,) for item in error.errors(include_url=False))
    return True


def validate(
    config: type[Params], content: Content, places: Mapping[str, str]
) -> tuple[Any, list[str]]:
    """Configuration, None if invalid, and its errors; `places`: see `error_messages`."""
    try:
        return config.model_validate(pick_sections(config, content)), []
    except pydantic.ValidationError as error:
        # A missing section is reported once, not for each entry point that reads it.
        errors = [
            item for item in error.errors() if (item["type"], len(item["loc"])) != ("missing", 1)
        ]
        return None, list(error_messages(errors, content, places))


def check_row(
    row: TableRow, config: Any, content: Content, configs: Configs, tables: Tables
) -> Iterator[str]:
    """Errors: words of a row that do not fit its preset, the data or the rows that it learns from.

    The stages refuse them too, but later.
    """
    preset: Any = getattr(config, PRESET, None)
    remote = getattr(getattr(preset, "judge", None), "kind", "") == "endpoint"
    untrained = row.words["from"] == BASE and auto.is_embedded(content)
    if untrained and row.entry_point in NEEDS_TRAINED and not remote:
        yield f"{row}.from: {RANDOM_BASE}"
    if row.entry_point == "label_teacher" and row.words["from"] == BASE:
        yield f"{row}.from: no stage writes the weights of '{BASE}': name a row of policies"
    labels = configs.get(row.words.get("on", "").replace("/", ".", 1))
    if row.entry_point == "reward_process" and labels is not None:
        end, labelled = preset.separator, labels.preset.separator
        if end != labelled:
            yield (
                f"{row}: preset '{row.words[PRESET]}' has the separator {end!r:.100} and the "
                f"preset of its labels, {row.words['on']}, {labelled!r:.100}: take the same"
            )
    prepare = configs.get("prepare_data")
    if row.entry_point == "reward_rule" and prepare is not None:
        read = prepare.data.answer_forms
        for kind in preset.kinds():
            if (form := components.FORMS.get(kind, read[0])) not in read:
                yield (
                    f"{row}: the component '{kind}' rewards answers in the form '{form}', which "
                    f"data.answer_forms does not list: add it there, or take another preset"
                )
    for key in own_modules.IN_PRESETS:
        word = own_modules.get_own_word(getattr(preset, key, None))
        if word and not (file := Path(f"stages/algorithms/own/{word}.py")).is_file():
            yield (
                f"{row}.preset: '{row.words[PRESET]}' has {key} own/{word}, and "
                f"{describe_absence(file, key, word)}"
            )
    try:
        if row.entry_point == "reward_rule":
            describe_reward(row.name, configs, tables)
        elif row.kind == "sft":
            table, _, name = row.words["on"].partition("/")
            by = tables[PAIRS].get(name, {}).get("by") if table == PAIRS else None
            sft.check_teacher(row.words["on"], preset, has_teacher=by == "teacher")
        elif row.kind in ("grpo", "ppo"):
            check_signal(row, config, configs, tables)
    except pydantic.ValidationError as error:
        yield from error_messages(error.errors(), {}, {"": str(row)})
    except ValueError as error:
        yield f"{row}: {error}"


def check_environment(
    row: TableRow, preset: EnvironmentPreset, positions: int | None
) -> Iterator[str]:
    """Errors: limits beyond the model's `positions` (None: unknown)."""
    if positions is not None and preset.max_tokens > positions:
        yield (
            f"{row}: preset '{row.words[PRESET]}' has max_tokens {preset.max_tokens}, and the "
            f"model has {positions} positions: lower max_tokens, or take another model"
        )


def check_options(row: TableRow, preset: EnvironmentPreset) -> Iterator[str]:
    """Errors: options that do not fit the signature of the user's class in its source.

    The user's code is not imported, so an `__init__` that is inherited, or made by a decorator, is
    not checked.
    """
    methods, word = METHODS.get(row.kind), own_modules.get_own_word(row.words["on"])
    path = OWN_SOURCES[ENVIRONMENTS] / f"{word}.py"
    if methods is None or not path.is_file():
        return
    with suppress(SyntaxError):  # `trace_code` says where
        for node in ast.parse(path.read_bytes()).body:
            functions = {item.name: item for item in getattr(node, "body", ())
                         if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}  # fmt: skip
            if not isinstance(node, ast.ClassDef) or not functions.keys() >= {*methods}:
                continue
            init = functions.get("__init__")
            if node.decorator_list or (init.decorator_list if init else node.bases):
                continue
            bare = Signature([Parameter("self", Parameter.POSITIONAL_ONLY)])
            signature = bare if init is None else read_signature(init.args)
            first = ("self", "row") if row.kind in TAKE_ROW else ("self",)
            try:
                signature.bind(*first, **preset.options)
            except TypeError as error:
                yield (
                    f"{row}: the options of preset '{row.words[PRESET]}' do not fit the class "
                    f"{node.name} in {path}: {error}. Correct one of them"
                )


def read_signature(arguments: ast.arguments) -> Signature:
    """Signature of a function from its syntax tree; defaults are syntax trees, too."""
    positional = [*arguments.posonlyargs, *arguments.args]
    without = [None] * (len(positional) - len(arguments.defaults))
    kinds = [
        (Parameter.POSITIONAL_OR_KEYWORD, positional, [*without, *arguments.defaults]),
        (Parameter.VAR_POSITIONAL, [arguments.vararg], [None]),
        (Parameter.KEYWORD_ONLY, arguments.kwonlyargs, arguments.kw_defaults),
        (Parameter.VAR_KEYWORD, [arguments.kwarg], [None]),
    ]
    return Signature([
        Parameter(name.arg, kind, default=Parameter.empty if default is None else default)
        for kind, names, defaults in kinds
        for name, default in zip(names, defaults, strict=True) if name is not None
    ])  # fmt: skip


def check_signal(row: TableRow, config: Any, configs: Configs, tables: Tables) -> None:
    """Raise a ValueError if the preset cannot learn from the teacher, environment or reward."""
    on, preset = row.words["on"], config.preset
    teacher.check_source(on, preset)
    if on.startswith(FOLDER):
        episodes.check_method(preset)
        environment = configs.get(on.replace("/", ".", 1))
        starts = None if environment is None else environment.preset.starts
        if isinstance(starts, Starts):
            needed = getattr(config, row.kind).prompts_per_step * preset.max_rounds
            next(endless_batches(starts.train, needed, seed=0))
    elif not teacher.is_teacher(on):
        reward = None
        with suppress(ValueError):  # reported for the reward's row
            reward = describe_reward(on.partition("/")[2], configs, tables)
        if reward is not None:
            check_reward(getattr(config, row.kind), preset, reward)


def describe_reward(name: str, configs: Configs, tables: Tables) -> RewardFile | None:
    """Content of a reward's reward.json, without digests; None if its row is missing or invalid."""
    words, config = tables[REWARDS].get(name), configs.get(f"{REWARDS}.{name}")
    if words is None or config is None:
        return None
    if words["by"] != "rule":
        return reward_file.model_reward_file(words["by"])  # pyright: ignore[reportArgumentType]
    composition, on = config.preset, words["on"]
    reward_file.check_source(composition, on)
    model = "policy" if composition.needs_judge() else None
    if composition.needs_model() and model is None:
        source = describe_reward(on.removeprefix(reward_file.OTHER), configs, tables)
        if source is None:
            return None
        model = source.model
    file = on.removeprefix(reward_file.OWN) if "own" in composition.kinds() else None
    return RewardFile(
        kind="rule", model=model, composition=composition, aggregate=reward_file.MEAN, own=file,
        own_digest=None,
    )  # fmt: skip
