"""The tokens and operations that each stage is expected to take.

Counted from the rows of the tables, the sizes of params.yaml and the mean lengths of the data, as
`algorithms/flops` counts what was done. It is assumed that a policy's completions are as long as
the demonstrations, with as many lines, but that the longest of a batch reaches its limit; that an
episode's turns are half as long as its environment allows; that half of the problems have both
right and wrong completions (a judge chooses between any two); and that no two completions of a
problem are equal.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean

from stages.algorithms import flops
from stages.algorithms.flops import Matrices, Passes
from stages.environments.definition import EnvironmentPreset
from stages.loops import pool_sampling, step_labels
from stages.planning import stage as stage_of
from stages.planning.stage import Data, Plan, Stage
from stages.rewards.feedback import injections, judging
from stages.rewards.feedback.prompts import Prompts
from stages.sources.data_summary import DataSummary
from stages.tables import REWARDS

CONTRASTS = 0.5
"""Share of problems with right and wrong completions."""
ASSUMED_TOKENS, ASSUMED_LINES = 256, 4
"""Size of a completion where the data have no solutions."""
CHARACTERS = 4
"""Of a token of a judge's request."""
Number = float | int
"""Means and counts of tokens."""
MOST_PAIRS = "max_pairs_per_problem"


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Tokens and floating-point operations of a stage, for all seeds together."""

    tokens: Number
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
        """Of all passes."""
        return self.trained + self.forward + self.sampled


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
class CompletionSizes:
    """Completions of each prompt, and the number of prompts that a sampler is given at once."""

    completions: int
    tokens: Number
    """Mean tokens of a completion, of all its turns."""
    limit: int
    """Tokens of a turn at most."""
    prompts_per_call: int
    turns: int = 1


class Count:
    """Adds up a stage's passes, of one seed."""

    def __init__(self, model: Matrices, max_batch: int) -> None:
        self.tokens = 0.0
        self.operations = {"trained": 0, "forward": 0, "sampled": 0}
        self.steps = 0
        self._model, self._max_batch = model, max_batch

    def forward(self, times: Number, positions: Number, outputs: Number) -> None:
        """`times` rows of so many positions, `outputs` of them with logits, go forward."""
        passes = Passes(positions=round(times * positions), outputs=round(times * outputs))
        self.operations["forward"] += flops.count_forward_flops(self._model, passes)

    def sample(self, prompts: Number, prompt: Number, sizes: CompletionSizes) -> None:
        """Completions of `prompts` prompts of so many tokens are sampled."""
        self.forward(prompts, prompt, 0)
        tokens = round(prompts * sizes.completions * sizes.tokens)
        passes = Passes(positions=tokens, outputs=tokens)
        self.operations["sampled"] += flops.count_forward_flops(self._model, passes)
        per_batch = max(1, self._max_batch // sizes.completions)
        calls, remainder = divmod(math.ceil(prompts), sizes.prompts_per_call)
        batches = calls * math.ceil(sizes.prompts_per_call / per_batch)
        batches += math.ceil(remainder / per_batch)
        self.steps += sizes.turns * batches * sizes.limit

    def train(self, times: Number, positions: Number, outputs: Number) -> None:
        """Rows as those of `forward` go forward and backward."""
        passes = Passes(positions=round(times * positions), outputs=round(times * outputs))
        self.operations["trained"] += flops.count_training_flops(self._model, passes)


def forecast_work(stage: Stage, plan: Plan, model: Matrices) -> Work:
    """What the stage takes if all goes as assumed; nothing where no model computes.

    A prompt that completions share is read once for all of them.
    """
    count = Count(model, plan.content["compute"]["max_batch"])
    seeds = len(plan.content["seeds"])
    if stage.entry_point in COUNTED and not stage_of.is_remote(stage):
        COUNTED[stage.entry_point](stage, plan, count)
    by_kind = {kind: seeds * number for kind, number in count.operations.items()}
    return Work(tokens=seeds * count.tokens, steps=seeds * count.steps, **by_kind)


def _demonstrations(stage: Stage, plan: Plan, count: Count) -> None:
    preset, data = stage.config.preset, plan.data
    number, completion = data.demonstrations, data.completion
    if (environment := stage_of.find_environment(stage, plan)) is not None:
        number = stage_of.count_starts(environment, "train", plan)
        completion = _episode_tokens(environment)
    if preset.teacher is not None:
        limit = stage_of.label_preset(stage, plan).get("max_samples_per_problem")
        each = stage_of.count_completions(stage, plan)
        number = _problems(stage, plan) * (each if limit is None else min(limit, each))
    times = preset.override(stage.config.sft).num_epochs * (preset.num_demonstrations or number)
    count.tokens = times * completion
    count.train(times, data.prompt + completion, completion)
    if preset.teacher is not None:
        count.forward(times, data.prompt + completion, completion)


def _pairs(stage: Stage, plan: Plan, count: Count) -> None:
    is_policy, data = stage.entry_point == "train_dpo", plan.data
    settings = stage.config.dpo if is_policy else stage.config.preset
    each = min(stage_of.label_preset(stage, plan).get(MOST_PAIRS, 1), _most_pairs(stage, plan))
    # The others do not need right and wrong completions.
    is_by_answer = stage_of.find_label_kind(stage, plan) in ("verifier", "episodes")
    share = CONTRASTS if is_by_answer else 1.0
    pairs = share * each * _problems(stage, plan)
    times = settings.num_epochs * pairs * getattr(settings, "members", 1)
    both = 2 * data.completion
    count.tokens = times * both
    count.train(times, data.prompt + both, both if is_policy else 0)
    if is_policy:
        count.forward(pairs, data.prompt + both, both)


def _completions(stage: Stage, plan: Plan, count: Count) -> None:
    preset, each = stage.config.preset, stage_of.count_completions(stage, plan)
    shown = min(each, getattr(preset, "max_per_problem", each)) * plan.data.completion
    num_labelled = (
        stage_of.label_preset(stage, plan).get("num_problems") or plan.data.demonstrations
    )
    # An outcome model may leave out problems without right or without wrong completions.
    share = CONTRASTS if getattr(preset, "one_class_weight", None) == 0 else 1.0
    times = share * preset.num_epochs * min(num_labelled, _problems(stage, plan))
    count.tokens = times * shown
    count.train(times, plan.data.prompt + shown, 0)


def _online(stage: Stage, plan: Plan, count: Count) -> None:
    is_ppo, preset = stage.entry_point == "train_ppo", stage.config.preset
    sizes = stage.config.ppo if is_ppo else stage.config.grpo
    environment = stage_of.find_environment(stage, plan)
    completion = plan.data.completion if environment is None else _episode_tokens(environment)
    tokens = stage_of.count_completions(stage, plan) * completion
    times, positions = sizes.num_steps * sizes.prompts_per_step, plan.data.prompt + tokens
    count.tokens = times * tokens * (1 + preset.num_epochs)
    reuse = preset.num_epochs * preset.num_minibatches > 1
    sampled = CompletionSizes(
        completions=stage_of.count_completions(stage, plan), tokens=completion,
        limit=sizes.max_new_tokens, prompts_per_call=sizes.prompts_per_step,
    )  # fmt: skip
    count.sample(times, plan.data.prompt, _play(sampled, environment) if environment else sampled)
    # Read by the reference and, where it moves on meanwhile, by the policy; scored.
    count.forward(times * (preset.measures_kl + reuse), positions, tokens)
    if preset.needs_policy_logprobs:
        stale = max(0, sizes.num_steps - 1) if preset.staleness else 0
        count.forward(stale * sizes.prompts_per_step, positions, tokens)
    shown = plan.data.prompt + completion if preset.teacher_reads_solution else 0
    count.forward(times * preset.has_teacher, positions + shown, tokens)
    models = stage_of.list_scorers(stage.words["on"], plan)
    count.forward(times * (len(models) + is_ppo), positions, 0)
    count.train(times * preset.num_epochs, positions, tokens)
    if is_ppo:
        count.train(times * preset.num_epochs, positions, 0)


def _played(stage: Stage, plan: Plan, count: Count) -> None:
    environment = stage_of.find_environment(stage, plan)
    assert environment is not None
    number = stage_of.count_starts(environment, stage.words["split"], plan)
    completions = stage_of.count_completions(stage, plan)
    count.tokens = number * completions * _episode_tokens(environment)
    sampled = CompletionSizes(
        completions=completions, tokens=0, limit=0, prompts_per_call=max(1, number)
    )
    count.sample(number, plan.data.prompt, _play(sampled, environment))


def _play(sizes: CompletionSizes, environment: EnvironmentPreset) -> CompletionSizes:
    """The sizes of completions that are the turns of an episode."""
    return replace(
        sizes, tokens=_episode_tokens(environment), turns=environment.max_turns,
        limit=min(environment.max_turn_tokens, environment.max_tokens),
    )  # fmt: skip


def _episode_tokens(environment: EnvironmentPreset) -> float:
    """Sampled tokens of an episode, half of what its limits allow."""
    allowed = environment.max_turns * environment.max_turn_tokens
    return min(allowed, environment.max_tokens) / 2


def _samples(stage: Stage, plan: Plan, count: Count) -> None:
    sampling, split = plan.content["sampling"], stage.words.get("split", "test")
    dev = "heldout" if stage.entry_point == "pool" else "dev"
    for prompts, name in ((split, split), ("dev", dev)):
        number, settings = plan.data.prompts.get(prompts, 0), sampling[name]
        numbers = [settings["num_samples"]]
        if stage.entry_point == "sample":
            temperatures = plan.content["temperatures"]
            # The greedy completion, and a few at each of the other temperatures.
            numbers += [1, *[temperatures["num_samples"]] * len(temperatures["tried"])]
        for completions in numbers:
            count.tokens += number * completions * plan.data.completion
            sampled = CompletionSizes(
                completions=completions, tokens=plan.data.completion,
                limit=settings["max_new_tokens"], prompts_per_call=pool_sampling.CHUNK,
            )  # fmt: skip
            count.sample(number, plan.data.prompt, sampled)


def _evaluated(_stage: Stage, plan: Plan, count: Count) -> None:
    number = plan.data.prompts.get("test", 0)
    shown = plan.content["sampling"]["test"]["num_samples"] * plan.data.completion
    for name, words in plan.rows[REWARDS].items():
        if words["by"] != "rule":
            models = stage_of.list_scorers(f"{REWARDS}/{name}", plan)
            count.forward(len(models) * number, plan.data.prompt + shown, 0)


def _steps(stage: Stage, plan: Plan, count: Count) -> None:
    preset, data, problems = stage.config.preset, plan.data, _problems(stage, plan)
    problems = min(problems, preset.num_problems or problems) + data.prompts.get("dev", 0)
    # The last step is followed by nothing.
    steps = max(0.0, data.completion_lines - 1)
    prefixes = problems * preset.max_solutions_per_problem * steps
    half = data.completion / 2
    count.tokens = prefixes * preset.num_completions * half
    if preset.num_completions:
        split = stage_of.pool_split(stage, plan)
        sampled = CompletionSizes(
            completions=preset.num_completions, tokens=half, prompts_per_call=step_labels.CHUNK,
            limit=plan.content["sampling"][split]["max_new_tokens"],
        )  # fmt: skip
        count.sample(prefixes, data.prompt + half, sampled)


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
        count.forward(2 * pairs, length, 1)
    else:
        limit = preset.reasoning.max_new_tokens
        count.tokens = 2 * pairs * limit
        sampled = CompletionSizes(
            completions=1, tokens=limit, limit=limit, prompts_per_call=2 * judging.CHUNK
        )
        count.sample(2 * pairs, length, sampled)


COUNTED: dict[str, Callable[[Stage, Plan, Count], None]] = {
    "train_sft": _demonstrations, "train_dpo": _pairs, "reward_preference": _pairs,
    "reward_outcome": _completions, "reward_process": _completions, "train_ppo": _online,
    "train_grpo": _online, "pool": _samples, "sample": _samples, "steps_completions": _steps,
    "label_judge": _judged, "play_policy": _played, "evaluate": _evaluated,
}  # fmt: skip
"""Entry point -> what counts its work."""


def _most_pairs(stage: Stage, plan: Plan) -> int:
    """Pairs of two different completions of a problem, at least 1."""
    return max(1, math.comb(stage_of.count_completions(stage, plan), 2))


def _problems(stage: Stage, plan: Plan) -> int:
    """Number of problems in the pool from which the stage's input was made."""
    return plan.data.prompts.get(stage_of.pool_split(stage, plan), 0)
