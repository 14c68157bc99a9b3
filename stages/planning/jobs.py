"""Forecast of the work of each stage in a plan: texts, completions, tokens and operations.

Counted from the rows of the tables, the sizes of params.yaml and the mean lengths of the data, as
`algorithms/flops` counts finished work. Assumptions: a policy's completions are as long as the
demonstrations, with as many lines, but the longest of a batch reaches its limit; an episode's turns
are half as long as its environment allows; half of the problems have both right and wrong
completions (a judge chooses between any two); a label keeps as many of each problem as its preset
allows; half of the samples that are evaluated are distinct, and no two other completions of a
problem are equal.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from stages import plan_checks, tables
from stages.algorithms import flops
from stages.algorithms.flops import Matrices, Passes
from stages.config import PRESET, merge, pick_sections
from stages.environments.definition import EnvironmentPreset
from stages.loops import pool_sampling, revision, step_labels
from stages.records.problems import Demonstration
from stages.rewards.composition import Composition
from stages.rewards.feedback import injections, judging
from stages.rewards.feedback.principles import CONSTITUTIONS
from stages.rewards.feedback.prompts import Prompts, critique_message, revision_message
from stages.rows import STAGES
from stages.sources.data_summary import DataSummary
from stages.tables import ENVIRONMENTS, EPISODES, PAIRS, POLICIES, POOLS, REWARDS, STEPS, Tables

Content = Mapping[str, Any]
OF_POLICIES = ("sample", "evaluate")
"""Stages that each policy has besides its training."""
DATA_TABLES = (PAIRS, STEPS, POOLS, EPISODES, ENVIRONMENTS)
"""Tables whose rows are made from each other without training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    """Numbers of rows, and of their tokens."""

    prompts: Mapping[str, int]
    """Number of prompts by split."""
    demonstrations: int
    prompt: float
    """Mean tokens of a prompt; `completion`: of a completion."""
    completion: float
    completion_lines: float
    """Mean lines of a completion."""
    longest: tuple[int, int]
    """Tokens of a prompt and of a completion."""
    example: Demonstration | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Inputs of stages: params.yaml and presets.yaml, every `auto` replaced; all rows; the data."""

    content: Content
    presets: Content
    rows: Tables
    data: Data


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A row that is made, or a policy that is sampled from or evaluated."""

    name: str
    """Name in DVC, such as `train@sft`."""
    entry_point: str
    words: Mapping[str, Any]
    config: Any
    """The entry point's `Config`."""


def list_stages(plan: Plan) -> Iterator[Stage]:
    """Every stage in which a model may compute; rows that are wrong are left out."""
    entry_points = plan_checks.load_entry_points()
    stages = [
        (f"{STAGES[row.table]}@{row.name}", row.entry_point, row.words, row.kind, row.overrides)
        for row in tables.list_rows(plan.rows)
    ]
    for kind in OF_POLICIES:
        stages += [(f"{kind}@{name}", kind, {}, "", {}) for name in plan.rows[POLICIES]]
    for name, entry_point, words, section, overrides in stages:
        preset = plan.presets.get(words.get(PRESET, ""))
        content = {**merge(plan.content, {section: overrides}), PRESET: preset}
        config = entry_points[entry_point]
        config = config.model_validate(pick_sections(config, content))
        yield Stage(name=name, entry_point=entry_point, words=words, config=config)


def is_remote(stage: Stage) -> bool:
    """Whether an endpoint judges, so that no model computes here."""
    judge = getattr(getattr(stage.config, "preset", None), "judge", None)
    return getattr(judge, "kind", "") == "endpoint"


def max_lengths(stage: Stage, plan: Plan) -> tuple[int, int]:
    """Most tokens of a prompt and of a completion in the stage."""
    config, prompt = stage.config, plan.data.longest[0]
    if (environment := find_environment(stage, plan)) is not None:
        # A transcript has one limit for its whole length.
        prompt = min(prompt, environment.max_tokens - 1)
        return prompt, environment.max_tokens - prompt
    match stage.entry_point:
        case "train_ppo" | "train_grpo":
            completion = getattr(config, stage.entry_point[6:]).max_new_tokens
        case "sample":
            completion = _longest_sample(plan, "dev", "test")
        case "pool":
            completion = _longest_sample(plan, stage.words["split"], "heldout")
        case "label_revision":
            prompt, completion = config.preset.max_prompt_tokens, config.preset.max_new_tokens
        case "label_judge" if not is_remote(stage):
            prompt = config.preset.judge.max_prompt_tokens
            completion = 1 + getattr(config.preset.reasoning, "max_new_tokens", 0)
        case _:
            prompt, completion = _longest_written(stage.words.get("on", ""), plan)
    return prompt, completion


def trace_inputs(on: str, plan: Plan) -> dict[str, Content]:
    """Table -> row, for the rows that the folder `on` was made from, the nearest first.

    It ends where models are trained: what a reward or a policy learned from is no input.
    """
    rows = dict[str, Content]()
    table, _, name = on.partition("/")
    while table in DATA_TABLES and name in plan.rows.get(table, {}):
        rows[table] = plan.rows[table][name]
        table, _, name = rows[table].get("on", "").partition("/")
    return rows


def find_environment(stage: Stage, plan: Plan) -> EnvironmentPreset | None:
    """Preset of the environment in which the stage plays, or whose episodes it learns from."""
    row = trace_inputs(stage.words.get("on", ""), plan).get(ENVIRONMENTS)
    return None if row is None else EnvironmentPreset.model_validate(plan.presets[row[PRESET]])


def count_starts(environment: EnvironmentPreset, split: str, plan: Plan) -> int:
    """Rows of a split that episodes start from."""
    if environment.starts == "prompts":
        return plan.data.prompts.get(split, 0)
    return getattr(environment.starts, split)


def _longest_sample(plan: Plan, *samplings: str) -> int:
    return max(plan.content["sampling"][split]["max_new_tokens"] for split in samplings)


def _longest_written(on: str, plan: Plan) -> tuple[int, int]:
    # Lengths of the longest prompt and completion in the folder `on`.
    rows, (prompt, completion) = trace_inputs(on, plan), plan.data.longest
    if POOLS in rows:
        completion = _longest_sample(plan, rows[POOLS]["split"], "heldout")
    for row in (rows[table] for table in (PAIRS, STEPS) if table in rows):
        preset = plan.presets[row[PRESET]]
        if row["by"] == "people":
            # For people's rows, only the length of both together is known.
            prompt = min(prompt, preset["max_tokens"] - 1)
            return prompt, preset["max_tokens"] - prompt
        completion = max(completion, preset.get("max_new_tokens", 0))
    return prompt, completion


def list_scorers(reward: str, plan: Plan) -> tuple[str, ...]:
    """Purpose of each model of `rewards/..`: `reward`, `process` or `policy`.

    None in environments, and none for a teacher, which is not a reward.
    """
    table, _, name = reward.partition("/")
    if table != REWARDS:
        return ()
    words = plan.rows[REWARDS][name]
    preset = plan.presets[words[PRESET]]
    if words["by"] != "rule":
        use = "process" if words["by"] == "process" else "reward"
        return (use,) * preset.get("members", 1)
    kinds = Composition.model_validate(preset).kinds()
    if kinds & {"scorer", "process"}:
        return list_scorers(words["on"], plan)
    return ("policy",) if "judge" in kinds else ()


def count_completions(stage: Stage, plan: Plan) -> int:
    """Number of completions that the stage draws per prompt, or reads side by side."""
    match stage.entry_point:
        case "train_ppo" | "train_grpo":
            return getattr(stage.config, stage.entry_point[6:]).completions_per_prompt
        case "sample":
            return plan.content["sampling"]["test"]["num_samples"]
        case "pool":
            return plan.content["sampling"][stage.words["split"]]["num_samples"]
        case "play_policy":
            environment = find_environment(stage, plan)
            assert environment is not None
            return stage.words.get("num_episodes", environment.num_episodes)
        case "steps_completions":
            return max(1, stage.config.preset.num_completions)
        case _:
            num_samples = plan.content["sampling"][pool_split(stage, plan)]["num_samples"]
            return label_preset(stage, plan).get("max_solutions_per_problem", num_samples)


def pool_split(stage: Stage, plan: Plan) -> str:
    """Split of the problems in the pool from which the stage's input was made."""
    pool = trace_inputs(stage.words.get("on", ""), plan).get(POOLS, {})
    return pool.get("split", "preference")


def label_preset(stage: Stage, plan: Plan) -> Content:
    """Preset that labelled the steps or pairs that the stage learns from."""
    rows = trace_inputs(stage.words.get("on", ""), plan)
    labels = rows.get(PAIRS) or rows.get(STEPS)
    return plan.presets[labels[PRESET]] if labels else {}


# --- tokens and operations

CONTRASTS = 0.5
"""Share of problems with right and wrong completions."""
DISTINCT = 0.5
"""Share of a test problem's samples that differ from those before, which rewards read once."""
KEPT = ("max_pairs_per_problem", "max_per_problem", "max_samples_per_problem")
"""Keys of presets: pairs or demonstrations that a label keeps of a problem."""
ASSUMED_TOKENS, ASSUMED_LINES = 256, 4
"""Size of a completion if the data have no solutions."""
CHARACTERS = 4
"""Characters per token of a judge's request."""
Number = float | int
"""Means and counts of tokens."""


@dataclass(kw_only=True, slots=True)
class Work:
    """Tokens and floating-point operations of a stage, for all seeds together."""

    tokens: Number = 0
    """Tokens that are generated, and those that are trained on, counted in each epoch."""
    trained: int = 0
    """Operations of forward and backward passes."""
    forward: int = 0
    """Operations of forward passes over given tokens."""
    sampled: int = 0
    """Operations of forward passes that generate a token each."""
    steps: int = 0
    """Decode steps: each samples a token of every row of a batch."""

    @property
    def operations(self) -> int:
        """Operations of all passes."""
        return self.trained + self.forward + self.sampled


def count_operations(kind: str, model: Matrices, passes: Passes) -> int:
    """Operations of passes: `trained` ones go forward and backward, all others forward."""
    count = flops.count_training_flops if kind == "trained" else flops.count_forward_flops
    return count(model, passes)


def summarise_data(summary: DataSummary) -> Data:
    """Counts and lengths of prepared rows; without demonstrations a length is assumed."""
    written = summary.all_completion_tokens()
    lines = summary.completion_lines / len(written) if written else ASSUMED_LINES
    return Data(
        prompts={split: len(lengths) for split, lengths in summary.prompt_tokens.items()},
        demonstrations=len(written), prompt=fmean(summary.all_prompt_tokens()),
        completion=fmean(written or [ASSUMED_TOKENS]), completion_lines=lines,
        longest=(summary.longest_prompt, max(written or [ASSUMED_TOKENS])), example=summary.example,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """Sum of a stage's passes over all seeds."""

    work: Work
    model: Matrices
    seeds: int
    max_batch: int

    def add(self, kind: str, times: Number, positions: Number, outputs: Number) -> None:
        """Add passes of `times` rows of so many positions, `outputs` of them with logits.

        All go forward; kind `trained`: also backward; `sampled`: a position at a time.
        """
        passes = Passes(positions=round(times * positions), outputs=round(times * outputs))
        operations = self.seeds * count_operations(kind, self.model, passes)
        setattr(self.work, kind, getattr(self.work, kind) + operations)

    def train(
        self, times: Number, prompt: Number, completion: Number, *, has_logits: bool = True
    ) -> None:
        """Add training on the completion tokens of `times` rows of so many tokens."""
        self.work.tokens += self.seeds * times * completion
        self.add("trained", times, prompt + completion, completion if has_logits else 0)

    def sample(
        self, prompts: Number, prompt: Number, *, completions: int, tokens: Number, limit: int,
        per_call: int, turns: int = 1,
    ) -> None:  # fmt: skip
        """Add sampling of completions of `prompts` prompts of so many tokens, `per_call` at once.

        A prompt that completions share is read once. `tokens`: mean tokens of a completion, over
        all its turns; `limit`: most tokens of a turn.
        """
        self.add("forward", prompts, prompt, 0)
        self.work.tokens += self.seeds * prompts * completions * tokens
        self.add("sampled", prompts * completions, tokens, tokens)
        per_batch = max(1, self.max_batch // completions)
        calls, remainder = divmod(math.ceil(prompts), per_call)
        batches = calls * math.ceil(per_call / per_batch) + math.ceil(remainder / per_batch)
        self.work.steps += self.seeds * turns * batches * limit


def forecast_work(stage: Stage, plan: Plan, model: Matrices) -> Work:
    """Work of the stage under the assumptions above; none if no model computes."""
    work, max_batch = Work(), plan.content["compute"]["max_batch"]
    if stage.entry_point in COUNTED and not is_remote(stage):
        count = Count(work=work, model=model, seeds=len(plan.content["seeds"]), max_batch=max_batch)
        COUNTED[stage.entry_point](stage, plan, count)
    return work


def _demonstrations(stage: Stage, plan: Plan, count: Count) -> None:
    preset, data = stage.config.preset, plan.data
    number, completion = data.demonstrations, data.completion
    if (environment := find_environment(stage, plan)) is not None:
        number = count_starts(environment, "train", plan)
        completion = _episode_tokens(environment)
    if POOLS in trace_inputs(stage.words["on"], plan):
        number = _problems(stage, plan) * _kept(stage, plan, count_completions(stage, plan))
    times = preset.override(stage.config.sft).num_epochs * (preset.num_demonstrations or number)
    count.train(times, data.prompt, completion)
    if preset.teacher is not None:
        count.add("forward", times, data.prompt + completion, completion)


def _pairs(stage: Stage, plan: Plan, count: Count) -> None:
    is_policy, both = stage.entry_point == "train_dpo", 2 * plan.data.completion
    settings = stage.config.dpo if is_policy else stage.config.preset
    rows = trace_inputs(stage.words["on"], plan)
    each = _kept(stage, plan, _most_pairs(stage, plan)) if POOLS in rows else 1
    # Other labellers do not need right and wrong completions.
    by = rows[PAIRS]["by"]
    share = CONTRASTS if by in ("verifier", "episodes") else 1.0
    pairs = share * each * _problems(stage, plan)
    times = settings.num_epochs * pairs * getattr(settings, "members", 1)
    count.train(times, plan.data.prompt, both, has_logits=is_policy)
    if is_policy:
        count.add("forward", pairs, plan.data.prompt + both, both)


def _completions(stage: Stage, plan: Plan, count: Count) -> None:
    preset, each = stage.config.preset, count_completions(stage, plan)
    shown = min(each, getattr(preset, "max_per_problem", each)) * plan.data.completion
    problems = _problems(stage, plan)
    num_labelled = label_preset(stage, plan).get("num_problems") or problems
    # An outcome model may leave out problems without right or without wrong completions.
    share = CONTRASTS if getattr(preset, "one_class_weight", None) == 0 else 1.0
    times = share * preset.num_epochs * min(num_labelled, problems)
    count.train(times, plan.data.prompt, shown, has_logits=False)


def _online(stage: Stage, plan: Plan, count: Count) -> None:
    is_ppo, preset, prompt = stage.entry_point == "train_ppo", stage.config.preset, plan.data.prompt
    sizes = stage.config.ppo if is_ppo else stage.config.grpo
    environment = find_environment(stage, plan)
    completion, turns = plan.data.completion, {"limit": sizes.max_new_tokens}
    if environment is not None:
        completion, turns = _episode_tokens(environment), _turns(environment)
    completions = count_completions(stage, plan)
    times, tokens = sizes.num_steps * sizes.prompts_per_step, completions * completion
    # Dynamic sampling ends with enough groups of unequal rewards; only these are trained on.
    drawn = times * min(preset.max_rounds, 1 / CONTRASTS)
    num_scorers = len(list_scorers(stage.words["on"], plan))
    for number in (completions, *[1] * (preset.advantage == "greedy_baseline")):
        count.sample(
            drawn, prompt, completions=number, tokens=completion, per_call=sizes.prompts_per_step,
            **turns,
        )  # fmt: skip
        count.add("forward", drawn * num_scorers, prompt + number * completion, 0)
    # Reference and teacher read them, and the policy if it is updated before it learns.
    moves = preset.num_epochs * preset.num_minibatches > 1 or preset.staleness > 0
    readers = preset.measures_kl + preset.has_teacher + moves
    count.add("forward", drawn * readers, prompt + tokens, tokens)
    count.add("forward", drawn * is_ppo, prompt + tokens, 0)
    count.train(times * preset.num_epochs, prompt, tokens)
    if is_ppo:
        count.add("trained", times * preset.num_epochs, prompt + tokens, 0)


def _played(stage: Stage, plan: Plan, count: Count) -> None:
    environment = find_environment(stage, plan)
    assert environment is not None
    number = count_starts(environment, stage.words["split"], plan)
    count.sample(
        number, plan.data.prompt, completions=count_completions(stage, plan),
        tokens=_episode_tokens(environment), per_call=max(1, number), **_turns(environment),
    )  # fmt: skip


def _turns(environment: EnvironmentPreset) -> dict[str, int]:
    limit = min(environment.max_turn_tokens, environment.max_tokens)
    return {"turns": environment.max_turns, "limit": limit}


def _episode_tokens(environment: EnvironmentPreset) -> float:
    # Half of what the limits of an episode allow.
    allowed = environment.max_turns * environment.max_turn_tokens
    return min(allowed, environment.max_tokens) / 2


def _samples(stage: Stage, plan: Plan, count: Count) -> None:
    sampling, split = plan.content["sampling"], stage.words.get("split", "test")
    dev = "heldout" if stage.entry_point == "pool" else "dev"
    for prompts, name in ((split, split), ("dev", dev)):
        numbers = [sampling[name]["num_samples"]]
        if stage.entry_point == "sample":
            temperatures = plan.content["temperatures"]
            # The greedy completion, and a few at each of the other temperatures.
            numbers += [1, *[temperatures["num_samples"]] * len(temperatures["tried"])]
        for completions in numbers:
            count.sample(
                plan.data.prompts.get(prompts, 0), plan.data.prompt, completions=completions,
                tokens=plan.data.completion, limit=sampling[name]["max_new_tokens"],
                per_call=pool_sampling.CHUNK,
            )  # fmt: skip


def _evaluated(_stage: Stage, plan: Plan, count: Count) -> None:
    number = plan.data.prompts.get("test", 0)
    shown = DISTINCT * plan.content["sampling"]["test"]["num_samples"] * plan.data.completion
    for name, words in plan.rows[REWARDS].items():
        if words["by"] != "rule":
            models = list_scorers(f"{REWARDS}/{name}", plan)
            count.add("forward", len(models) * number, plan.data.prompt + shown, 0)


def _steps(stage: Stage, plan: Plan, count: Count) -> None:
    preset, data, problems = stage.config.preset, plan.data, _problems(stage, plan)
    problems = min(problems, preset.num_problems or problems) + data.prompts.get("dev", 0)
    # Nothing follows the last step.
    steps = max(0.0, data.completion_lines - 1)
    if preset.num_completions:
        half = data.completion / 2
        count.sample(
            problems * preset.max_solutions_per_problem * steps, data.prompt + half,
            completions=preset.num_completions, tokens=half, per_call=step_labels.CHUNK,
            limit=_longest_sample(plan, pool_split(stage, plan)),
        )  # fmt: skip


def _judged(stage: Stage, plan: Plan, count: Count) -> None:
    preset, data = stage.config.preset, plan.data
    prompts = Prompts(style=preset.style, constitution=preset.constitution)
    request = prompts.message("", "", "", prompts.draw_principle(0))
    length = len(request) / CHARACTERS + data.prompt + 2 * data.completion
    each = min(preset.max_pairs_per_problem, _most_pairs(stage, plan))
    heldout = each * data.prompts.get("dev", 0)
    attacked = len(injections.TRIED) * min(heldout, preset.injection_pairs)
    pairs = each * _problems(stage, plan) + heldout + attacked
    if preset.reasoning is None:
        count.add("forward", 2 * pairs, length, 1)
    else:
        limit, per_call = preset.reasoning.max_new_tokens, 2 * judging.CHUNK
        count.sample(2 * pairs, length, completions=1, tokens=limit, limit=limit, per_call=per_call)


def _revised(stage: Stage, plan: Plan, count: Count) -> None:
    preset, data = stage.config.preset, plan.data
    principle = CONSTITUTIONS[preset.constitution][0]
    requests = (critique_message(preset.style, "", "", principle),
                revision_message(preset.style, "", "", "", principle))  # fmt: skip
    # A critique reads question and answer, a revision the critique, too.
    length = fmean(map(len, requests)) / CHARACTERS + data.prompt + 1.5 * data.completion
    each = min(preset.max_per_problem, count_completions(stage, plan))
    for problems in (_problems(stage, plan), data.prompts.get("dev", 0)):
        for _ in range(2 * preset.num_rounds):
            count.sample(
                each * problems, length, completions=1, tokens=data.completion,
                limit=preset.max_new_tokens, per_call=revision.CHUNK,
            )  # fmt: skip


COUNTED: dict[str, Callable[[Stage, Plan, Count], None]] = {
    "train_sft": _demonstrations, "train_dpo": _pairs, "reward_preference": _pairs,
    "reward_outcome": _completions, "reward_process": _completions, "train_ppo": _online,
    "train_grpo": _online, "pool": _samples, "sample": _samples, "steps_completions": _steps,
    "label_judge": _judged, "label_revision": _revised, "play_policy": _played,
    "evaluate": _evaluated,
}  # fmt: skip
"""Entry point -> function that counts its work."""


def _most_pairs(stage: Stage, plan: Plan) -> int:
    """Number of pairs of different completions of a problem, at least 1."""
    return max(1, math.comb(count_completions(stage, plan), 2))


def _kept(stage: Stage, plan: Plan, most: int) -> int:
    """Number of pairs or demonstrations that the label keeps of a problem, `most` at most."""
    preset = label_preset(stage, plan)
    return min([most, *(preset[key] for key in KEPT if preset.get(key))])


def _problems(stage: Stage, plan: Plan) -> int:
    """Number of problems in the pool from which the stage's input was made."""
    return plan.data.prompts.get(pool_split(stage, plan), 0)
