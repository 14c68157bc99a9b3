"""The loop of each kind of stage on a trial's models, with texts that mean nothing.

What decides memory is the stage's own: loop, preset, micro-batches, which models there are at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from stages.algorithms.ensemble import mean
from stages.loops import kto, preference, process_reward, reward, rl, rollout_rewards, sft
from stages.loops.kto import KtoReference
from stages.loops.method import Settings
from stages.loops.rollouts import RlModels, Rollouts, Task
from stages.models import attention
from stages.models.batch import make_groups, micro_batches
from stages.models.process_head import ProcessScorer, TokenizedSolution
from stages.models.scalar_head import Ensemble
from stages.planning.trial import EOS, PAD, TEXT, FullLength, Models, Trial
from stages.records.preferences import Outcome, Preference
from stages.records.problems import Demonstration, Prompt
from stages.records.steps import StepLabels
from stages.rewards.completion_rewards import CompletionRewards

STEP = 16
"""Tokens of a step of a solution."""


def _sft(trial: Trial, models: Models) -> Iterator[Any]:
    config = trial.config
    settings = config.preset.override(config.sft)
    numbers = trial.numbers(settings.batch_size, 1)
    rows = [
        Demonstration(
            id=str(i), task="solve", prompt="", prompt_ids=[TEXT] * trial.prompt, completion="",
            completion_ids=ids,
        )
        for i, ids in enumerate(trial.completions(len(numbers)))
    ]  # fmt: skip
    rows = [sft.as_document(row) for row in rows] if config.preset.learn_prompt else rows
    model, teacher = models.build("policy", trained=True), None
    if (loss := config.preset.teacher) is not None:
        teacher = sft.Teacher(policy=models.build("policy"), loss=loss)
    return sft.train(model, rows, [numbers] * 2, settings, teacher=teacher)


def _pairs(trial: Trial, numbers: range) -> list[Preference]:
    chosen, rejected = trial.completions(2)
    return [
        Preference(
            id=str(i), prompt="", prompt_ids=[TEXT] * trial.prompt, chosen="", chosen_ids=chosen,
            rejected="", rejected_ids=rejected, probability=1.0, source="verifier",
        )
        for i in numbers
    ]  # fmt: skip


def _dpo(trial: Trial, models: Models) -> Iterator[Any]:
    sizes, preset = trial.config.dpo, trial.config.preset
    model, numbers = models.build("policy", trained=True), trial.numbers(sizes.batch_size, 2)
    pairs = _pairs(trial, numbers)
    if preset.kind != preference.KTO:
        zeros = torch.zeros(len(pairs), 2)
        return preference.train(model, pairs, zeros, [numbers] * 2, preset, sizes)
    rows = kto.make_unpaired_examples(pairs)
    schedule = [range(min(len(rows), sizes.batch_size))] * 2
    mismatched = [torch.zeros(len(rows_of_step)) for rows_of_step in schedule]
    reference = KtoReference(matched=torch.zeros(len(rows)), mismatched=mismatched)
    return kto.train(model, rows, reference, schedule, preset, sizes)


def _reward_preference(trial: Trial, models: Models) -> Iterator[Any]:
    preset = trial.config.preset
    model, numbers = models.build("reward", trained=True), trial.numbers(preset.batch_size, 2)
    pairs = _pairs(trial, numbers)
    return reward.train(model, pairs, [numbers] * 2, preset)


def _reward_outcome(trial: Trial, models: Models) -> Iterator[Any]:
    preset = trial.config.preset
    each = min(trial.samples, preset.max_per_problem)
    model, numbers = models.build("reward", trained=True), trial.numbers(preset.batch_size, each)
    problems = [
        [
            Outcome(
                id=str(i), prompt_ids=[TEXT] * trial.prompt, completion_ids=ids, right=j % 2 == 0,
                weight=1.0,
            )
            for j, ids in enumerate(trial.completions(each))
        ]
        for i in numbers
    ]  # fmt: skip
    return reward.train_outcomes(model, problems, [numbers] * 2, preset)


def _reward_process(trial: Trial, models: Models) -> Iterator[Any]:
    preset = trial.config.preset
    model, numbers = (
        models.build("process", trained=True),
        trial.numbers(preset.batch_size, trial.samples),
    )
    rows = []
    for i in numbers:
        for j, ids in enumerate(trial.completions(trial.samples)):
            steps = [ids[start : start + STEP] for start in range(0, len(ids), STEP)]
            rows.append(
                StepLabels(
                    id=str(i), index=j, prompt="", prompt_ids=[TEXT] * trial.prompt,
                    steps=[""] * len(steps), step_ids=steps, labels=[1.0] * len(steps),
                    num_completions=[0] * len(steps), true_labels=None, correct=None, source="",
                )
            )  # fmt: skip
    schedule = [range(len(rows))] * 2
    return process_reward.train(model, rows, schedule, preset)


def _online(trial: Trial, models: Models) -> Iterator[Any]:
    config = trial.config
    is_ppo = trial.entry_point == "train_ppo"
    sizes = config.ppo if is_ppo else config.grpo
    # Old log-probs are one grid of numbers; more epochs and mini-batches take no more than one.
    # In the two steps of the trial the policy is trained, too.
    single = {"num_epochs": 1, "num_minibatches": 1, "value_warmup_steps": 0}
    preset = config.preset.model_copy(update=single)
    numbers = trial.numbers(
        -(-sizes.prompts_per_step // config.preset.num_minibatches), trial.samples
    )
    # The batches of prompts that are left out are there as well, all through a step.
    left_out = -(-sizes.prompts_per_step // trial.num_processes) - len(numbers)
    models.live.live += left_out * _held(trial, len(numbers)) // len(numbers)
    max_prompts = sizes.prompts_per_step * preset.max_rounds
    sizes = sizes.model_copy(update={"prompts_per_step": len(numbers), "num_steps": 2})
    settings = Settings(config=sizes, method=preset.for_engine("transformers"), seed=0)
    trained = models.build("policy", trained=True)
    initial = teacher = None
    if preset.measures_kl or preset.teacher_reads_solution:
        initial = trained if trial.config.lora.rank else models.build("policy")
    if preset.has_teacher:
        teacher = initial if preset.teacher_reads_solution else models.build("policy")
    # See `engines/loading`: each of several processes draws from a whole copy.
    drawn_from = trained if trial.num_processes == 1 else models.build("policy", spread=False)
    actor = RlModels(
        policy=trained, reference=initial if preset.measures_kl else None, teacher=teacher,
        decode=lambda _: "", sampler=models.sampler(drawn_from.model, max_prompts),
    )  # fmt: skip
    task = Task(
        prompts=[
            Prompt(id=str(i), task="solve", question="", prompt="", answer="",
                   prompt_ids=[TEXT] * trial.prompt)
            for i in range(settings.max_prompts())
        ],
        reward=_rewards(trial, models),
        check_answers=None,
    )  # fmt: skip
    if preset.teacher_reads_solution:  # as long as prompts and solutions may be
        shown = [TEXT] * (2 * trial.prompt + trial.completion)
        task = replace(task, teacher_prompts={prompt.id: shown for prompt in task.prompts})
    schedule = [range(len(task.prompts))] * 2
    if is_ppo:
        actor = replace(actor, value=models.build("reward", trained=True))
    return rl.train(actor, task, schedule, settings)


def _held(trial: Trial, number: int) -> int:
    """Bytes of so many prompts' micro-batches; of a GPU's long rows the mask is not dense."""
    compute, held = trial.config.compute, 0
    problems = [([TEXT] * trial.prompt, trial.completions(trial.samples))] * number
    groups = make_groups(problems, compute.row_tokens)
    for batch in micro_batches(groups, compute, PAD, torch.device("cpu")):
        tensors = [getattr(batch, item.name) for item in fields(batch)]
        if trial.is_gpu and batch.input_ids.shape[1] >= attention.FLEX_MIN_LENGTH:
            tensors = [item for item in tensors if item is not batch.attention_mask]
        held += sum(item.nbytes for item in tensors if isinstance(item, Tensor))
    return held


def _rewards(trial: Trial, models: Models) -> Callable[[Rollouts], CompletionRewards]:
    """The models of the reward read all that was drawn; what they say is made up, to differ."""
    scorers = [models.build(use, spread=False) for use in trial.scorers]
    use = trial.scorers[0] if trial.scorers else ""

    def judge(batch: Rollouts) -> CompletionRewards:
        with models.live.phase("scoring"):
            if use == "reward":
                rollout_rewards.score_completions(Ensemble(members=scorers, aggregate=mean), batch)
            elif use == "process":
                whole = [
                    TokenizedSolution(prompt_ids=[TEXT] * trial.prompt, steps=[sample.token_ids])
                    for sample in batch.samples
                ]
                ProcessScorer(model=scorers[0], decode=lambda _: "")(whole)
        ends = torch.zeros_like(batch.mask())
        ends[:, -1] = True
        totals = [float(i % trial.samples) for i in range(len(ends))]
        if use != "process":
            return CompletionRewards(totals=totals)
        paid = ends * torch.tensor(totals)[:, None]
        return CompletionRewards(totals=[0.0] * len(ends), step_rewards=paid, step_ends=ends)

    return judge


def _sampling(trial: Trial, models: Models) -> Iterator[Any]:
    sampler = models.sampler(models.build("policy").model)
    models.live.reset_peaks()
    _draw(sampler, trial, trial.samples)
    return iter(())


def _draw(sampler: FullLength, trial: Trial, each: int) -> None:
    settings = {"temperature": 1.0, "max_new_tokens": trial.completion}
    sampler.sample([[TEXT] * trial.prompt], [0], num_samples=each, **settings)


def _judging(trial: Trial, models: Models) -> Iterator[Any]:
    sampler = models.sampler(models.build("policy").model)
    models.live.reset_peaks()
    if trial.completion > 1:
        _draw(sampler, trial, 1)  # it thinks before it chooses
    number = max(1, trial.config.compute.max_tokens // trial.prompt)
    with models.live.phase("forward pass"):
        list(sampler.engine.next_logprobs([[TEXT] * trial.prompt] * number, [EOS]))  # pyright: ignore[reportOptionalMemberAccess]
    return iter(())


ONLINE = ("train_ppo", "train_grpo")
"""Those that sample from the policy that they train."""
LOOPS: dict[str, Callable[[Trial, Models], Iterator[Any]]] = {
    "train_sft": _sft, "train_dpo": _dpo, "train_ppo": _online, "train_grpo": _online,
    "reward_preference": _reward_preference, "reward_outcome": _reward_outcome,
    "reward_process": _reward_process, "pool": _sampling, "sample": _sampling,
    "play_policy": _sampling, "steps_completions": _sampling, "label_revision": _sampling,
    "label_judge": _judging,
}  # fmt: skip
"""Entry point -> its loop, ready to be stepped; where none is left to step, it ran."""
