"""Reinforcement learning of a policy: GRPO, PPO and their relatives.

    python -m stages train_grpo <policy> --train grpo --preset .. --from .. --on rewards/..
    python -m stages train_grpo <policy> --train grpo --preset opd --from .. --on policies/<teacher>
    python -m stages train_ppo  <policy> --train ppo  --preset .. --from .. --on environments/..

`train: grpo` compares the completions of a prompt: Shao et al., "DeepSeekMath" (2024),
https://arxiv.org/abs/2402.03300, is the preset `grpo_deepseekmath`. `train: ppo` learns a value
model: Schulman et al., "Proximal Policy Optimization Algorithms" (2017), applied as in Ouyang et
al., "Training language models to follow instructions" (2022), step 3, is `ppo_instructgpt`;
departure: no pretraining mix. From the base model with the rule reward, GRPO is R1-Zero's recipe
(Guo et al. 2025, https://arxiv.org/abs/2501.12948).

Reads the policy `from`, which is both the initial policy and the KL reference, and either prompts
and a reward, or an environment. PPO's value model starts from the reward model or from that policy.
Writes a policy for each seed, and every rollout that it learned from. The accuracy by the answer
checker is logged whatever the reward is. In an environment a rollout is an episode: the
environment's limits replace `max_new_tokens`, and before training a few episodes are played twice
to check that they are equal. With advantage `teacher` (`loops/teacher`) the reward is the answer
checker's verdict, with weight `reward_coef`, and a reference is loaded only if the preset needs it.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
from pydantic import model_validator
from torch import nn
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import rows, stage
from stages.engines import loading
from stages.engines.loading import EngineName
from stages.environments import checks, definition
from stages.environments.definition import FOLDER, EnvironmentFile
from stages.loops import episodes, method, overlap, rl, rollout_rewards, teacher, training, work
from stages.loops.episodes import Player
from stages.loops.method import (
    GroupMethod,
    GroupRlConfig,
    Method,
    PpoConfig,
    PpoMethod,
    RlConfig,
    Settings,
)
from stages.loops.rollouts import RlModels, Task
from stages.loops.run import Run
from stages.models import model_tokenizer, policy, row_policy, scalar_head, size
from stages.models.device import setup
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead
from stages.models.sharding import shard_model
from stages.models.turn_rendering import TurnRenderer
from stages.records import lines
from stages.records.problems import Demonstration, Prompt
from stages.rewards import reward_file
from stages.rows import Row
from stages.runtime import gpu_slot, process
from stages.runtime.forked_process import ForkedProcess
from stages.sampler import ColocatedSampler
from stages.seeding import derive_seed

logger = logging.getLogger(__name__)


class RlTraining(training.TrainingConfig):
    """Keys of params.yaml that train_grpo and train_ppo read, and the preset."""

    engine: EngineName
    """Inference engine that samples the completions."""
    preset: Method
    section: ClassVar[str]

    @property
    def sizes(self) -> RlConfig:
        """Section `grpo` or `ppo` of params.yaml."""
        return getattr(self, self.section)

    @property
    def num_samplers(self) -> int:
        """Processes that sample beside the one that trains, 0 or 1 (`loops/overlap`)."""
        can_overlap = self.preset.staleness > 0 and self.num_processes == 1
        return overlap.read_samplers() if can_overlap else 0

    @model_validator(mode="after")
    def _the_preset_fits_the_sizes(self) -> "RlTraining":
        method.check_sizes(self.sizes, self.preset)
        return self


class GrpoTraining(RlTraining):
    """Configuration of train_grpo."""

    grpo: GroupRlConfig
    preset: GroupMethod
    section = "grpo"


class PpoTraining(RlTraining):
    """Configuration of train_ppo."""

    ppo: PpoConfig
    preset: PpoMethod
    section = "ppo"


CONFIGS = {"train_grpo": GrpoTraining, "train_ppo": PpoTraining}


def main(*words: str) -> None:
    """Write `model/` and `training/` of the row's policy."""
    stage.run(train, words, CONFIGS, gpu=True, prepare=check_source)


def check_source(run: Run) -> None:
    """Refuse what the row cannot learn from, before any seed starts."""
    teacher.check_source(run.row.on, run.config.preset)
    if teacher.is_teacher(run.row.on):
        for seed in run.config.seeds:
            check_teacher(run.row, seed)
        return
    if (environment := read_environment(run.row)) is not None:
        episodes.check_method(run.config.preset)
        starts = definition.read_rows(run.row.source, "train")
        factory = definition.load_factory(environment)
        checks.check_replay(factory, starts[: checks.NUM_ROWS], environment.preset, run.seed)
        return
    reward = reward_file.read_reward(run.row.source)
    rollout_rewards.check_reward(run.config.sizes, run.config.preset, reward)


def check_teacher(row: Row, seed: int) -> None:
    """Refuse a teacher with another tokenizer than the student's."""
    names = row.policy, teacher.find_teacher(row)
    of_student, of_teacher = (row_policy.load_row_tokenizer(name, seed) for name in names)
    model_tokenizer.check_same_vocabulary(of_student, of_teacher, names)


def train(run: Run) -> dict[str, Any]:
    """Train the policy of one seed; returns its metrics."""
    with open_sampler_process(run) as sampler_process:
        models, task, settings, tokenizer = load(run)
        state, schedule = run.resume(), rl.make_schedule(task, settings)
        steps = rl.train(models, task, schedule, settings, state, sampler_process)
        sizes, dtype = settings.config, run.config.compute.dtype
        total = sizes.num_steps if settings.method.token_budget is None else None
        save = partial(policy.save_model, models.policy.model, tokenizer, dtype=dtype)
        try:
            history = run.record(
                steps, total=total, num_checkpoints=sizes.num_checkpoints, save=save
            )
            run.write_policy(save, rollouts=True)
        finally:
            # After the last save: vLLM takes the process group down with it.
            if isinstance(models.sampler, ColocatedSampler):
                models.sampler.close()
    warn_without_advantages(history)
    return {
        "steps": len(history),
        **work.summarise_training(history, measure_models(models, run.row, run.seed)),
    }


def warn_without_advantages(history: Sequence[Mapping[str, int | float]]) -> None:
    """Log a warning if every advantage of every step was 0: no reward has changed the policy."""
    name = "advantage/zero_share"
    if history and all(metrics.get(name) == 1 for metrics in history):
        logger.warning(
            "all advantages of all %d steps were 0, so no reward has changed the policy: the "
            "completions of a problem always had equal rewards. Raise group_size or the "
            "temperature, or take easier problems, or a reward that says more than right or wrong.",
            len(history),
        )


@contextmanager
def open_sampler_process(run: Run) -> Iterator[ForkedProcess | None]:
    """Context with the sampler process on a second GPU (`overlap`); None: there is no second GPU.

    It is forked before CUDA starts in this process.
    """
    if not run.config.num_samplers or len(gpu_slot.devices()) < 2:
        yield None
        return

    def load_there() -> tuple[RlModels, Task, Settings]:
        gpu_slot.show(1)
        return load(run, only_samples=True)[:3]

    assert not torch.cuda.is_initialized(), "CUDA cannot be used in a fork of a process that does"
    with closing(overlap.fork_sampler(load_there, rl.draw_content)) as sampler_process:
        gpu_slot.show(0)
        yield sampler_process


def load(
    run: Run, *, only_samples: bool = False
) -> tuple[RlModels, Task, Settings, PreTrainedTokenizerBase]:
    """Models, task and settings of one seed, and the tokenizer.

    `only_samples`: without the value model, and without a reward unless sampling depends on it.
    """
    config, row = run.config, run.row
    environment = read_environment(row)
    settings = Settings(
        config=config.sizes if environment is None else limit_sizes(config.sizes, environment),
        method=config.preset.for_engine(config.engine),
        seed=derive_seed(run.seed, f"train_{row.by}"),
    )
    sizes = settings.config
    if environment is not None:
        max_length = environment.preset.max_tokens
        models, tokenizer = load_models(
            config, row, run.seed, settings, max_length, only_samples=only_samples
        )
        task = make_environment_task(row, environment, tokenizer)
    else:
        prompts = list(lines.read_lines(rows.PROMPTS / "train.jsonl", Prompt))
        teacher.check_answers(prompts, settings.method)
        longest = max((len(prompt.prompt_ids) for prompt in prompts), default=0)
        max_length = longest + sizes.max_new_tokens
        models, tokenizer = load_models(
            config, row, run.seed, settings, max_length, only_samples=only_samples
        )
        if only_samples and not settings.method.samples_by_reward:
            reward = overlap.zero_rewards
        elif models.teacher is not None:
            reward = rollout_rewards.reward_answers
        else:
            reward = rollout_rewards.load_reward(
                row.source, run.seed, config.compute, models.policy.device, sizes.max_new_tokens
            )
        task = Task(
            prompts=prompts,
            reward=reward,
            check_answers=None if prompts[0].answer is None else rollout_rewards.check_answers,
        )
        if settings.method.teacher_reads_solution:
            task = show_solutions(task, row, tokenizer)
    return models, task, settings, tokenizer


def read_environment(row: Row) -> EnvironmentFile | None:
    """The environment that the row names in `on`; None: it names a reward."""
    return definition.read_environment(row.source) if row.on.startswith(FOLDER) else None


def limit_sizes(sizes: RlConfig, environment: EnvironmentFile) -> RlConfig:
    """The sizes with the environment's limit of sampled tokens."""
    return sizes.model_copy(update={"max_new_tokens": environment.preset.max_sampled_tokens()})


def make_environment_task(
    row: Row, environment: EnvironmentFile, tokenizer: PreTrainedTokenizerBase
) -> Task:
    """Task of playing in an environment; a ValueError where the chat template does not fit it."""
    starts = definition.read_rows(row.source, "train")
    player = Player(
        factory=definition.load_factory(environment),
        renderer=TurnRenderer(tokenizer),
        limits=environment.preset,
    )
    return episodes.make_task(player, starts)


def show_solutions(task: Task, row: Row, tokenizer: PreTrainedTokenizerBase) -> Task:
    """The task with the teacher's prompts, restricted to problems that have a right solution."""
    path, begin_id = row.source / "demonstrations.jsonl", tokenizer.bos_token_id
    demonstrations = lines.read_lines(path, Demonstration)
    shown = teacher.show_solutions(task.prompts, demonstrations, begin_id)  # pyright: ignore[reportArgumentType]
    prompts = [prompt for prompt in task.prompts if prompt.id in shown]
    return replace(task, prompts=prompts, teacher_prompts=shown)


def load_models(
    config: Any,
    row: Row,
    seed: int,
    settings: Settings,
    max_length: int,
    *,
    only_samples: bool = False,
) -> tuple[RlModels, PreTrainedTokenizerBase]:
    """Policy of this row and seed, its reference, value model or teacher, and its sampler.

    The reference is a frozen copy of the policy; with adapters, the policy without them. PPO also
    has a value model. Distillation has a teacher, and a reference only if the KL from it enters the
    reward, the loss or `kl_budget`. `max_length`: tokens of the longest prompt with its completion.
    `only_samples`: without a value model.
    """
    compute, chosen = config.compute, settings.method
    has_value = chosen.advantage == "gae"
    device, tokenizer = setup(compute), row_policy.load_row_tokenizer(row.policy, seed)

    def load(name: str, *, trained: bool = True) -> PreTrainedModel:
        return row_policy.load_row_policy(
            name, seed, config.model, compute, device, trained=trained
        )

    def frozen(name: str) -> Policy:
        return shard_model(Policy(load(name, trained=False), compute, pad_id))

    model = load(row.policy)
    without_adapters = row_policy.add_adapters(model, config.lora, settings.seed)
    sampler = loading.make_policy_sampler(
        config.engine,
        2 if has_value else 1,  # models that are trained, whose moments need memory
        model,
        tokenizer,
        source=row_policy.locate_policy(row.policy, seed, config.model),
        compute=compute,
        max_length=max_length,
    )
    pad_id = model_tokenizer.pad_id(tokenizer)
    learner = shard_model(Policy(model, compute, pad_id, without_adapters))
    initial = teacher_policy = None
    if chosen.measures_kl or chosen.teacher_reads_solution:
        initial = learner if without_adapters else frozen(row.policy)
    if chosen.has_teacher:
        is_initial = chosen.teacher_reads_solution
        teacher_policy = initial if is_initial else frozen(teacher.find_teacher(row))
    models = RlModels(
        policy=learner,
        reference=initial if chosen.measures_kl else None,
        teacher=teacher_policy,
        sampler=sampler,
        decode=model_tokenizer.make_decode(tokenizer),
    )
    if has_value and not only_samples:
        models = replace(models, value=load_value_model(config, row, seed, settings, models))
    return models, tokenizer


def load_value_model(
    config: Any, row: Row, seed: int, settings: Settings, models: RlModels
) -> nn.Module:
    """PPO's value model, on the policy's device: from the policy or from the reward model."""
    compute, pad_id, device = config.compute, models.policy.pad_id, models.policy.device
    if settings.method.value_init == "policy":
        folder = row_policy.locate_policy_folder(row.policy, seed, config.model)
        value = scalar_head.init_scalar_model(folder, pad_id, compute, device)
    else:
        # Of an ensemble, its first member: a mean of weights is no mean of functions.
        members = scalar_head.find_member_folders(reward_file.model_path(row.source, seed))
        value = scalar_head.load_scalar_model(members[0], compute, device)
    row_policy.add_adapters(value, config.lora, derive_seed(settings.seed, "value"))
    return shard_model(ScalarHead(value, compute, pad_id))


def measure_models(models: RlModels, row: Row, seed: int) -> dict[str, dict[str, int]]:
    """Size of every model that was in memory (`models/size`), for the table of costs."""
    sizes = {"policy": size.measure_model(models.policy.model)}
    if models.reference is not None:
        sizes["reference"] = size.measure_frozen(models.reference.model)
    if models.teacher is not None:
        sizes["teacher"] = size.measure_frozen(models.teacher.model)
    if models.value is not None:
        sizes["value"] = size.measure_model(models.value)
    is_reward = read_environment(row) is None and models.teacher is None
    if is_reward and reward_file.read_reward(row.source).model is not None:
        sizes["scorer"] = size.measure_scorer(reward_file.model_path(row.source, seed))
    return sizes


if __name__ == "__main__":
    process.run(main)
