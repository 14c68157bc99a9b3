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
Writes a policy for each seed, and every rollout of its training. The accuracy by the answer checker
is logged for any reward. In an environment a rollout is an episode: the environment's limits
replace `max_new_tokens`, and before training a few episodes are played twice to check that they are
equal. With advantage `teacher` (`loops/teacher`) the reward is the answer checker's verdict, with
weight `reward_coef`, and a reference is loaded only if the preset needs it.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
from pydantic import model_validator
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
from stages.models import model_tokenizer, policy, rope_limit, row_policy, scalar_head, size
from stages.models.device import setup
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead
from stages.models.sharding import shard_model
from stages.models.turn_rendering import TurnRenderer
from stages.records import lines
from stages.records.problems import Demonstration, Prompt
from stages.rewards import reward_file
from stages.rows import Row
from stages.runtime import gpu_slot
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
        """Number of sampler processes beside the trainer's, 0 or 1 (`loops/overlap`)."""
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
    """Check, before any seed starts, that the row can learn from its source."""
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
    """Raise a ValueError if the teacher's tokenizer is not the student's."""
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
            # After the last save, since vLLM destroys the process group.
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
            "temperature, or take easier problems, or a reward with more values than 0 and 1.",
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

    def load_there() -> rl.Trainer:
        gpu_slot.show(1)
        models, task, settings, _ = load(run, only_samples=True)
        return rl.Trainer(models=models, task=task, settings=settings)

    assert not torch.cuda.is_initialized(), "CUDA cannot be used in a fork of a process with CUDA"
    with closing(overlap.fork_sampler(load_there)) as sampler_process:
        gpu_slot.show(0)
        yield sampler_process


def load(
    run: Run, *, only_samples: bool = False
) -> tuple[RlModels, Task, Settings, PreTrainedTokenizerBase]:
    """Models, task and settings of one seed, and the tokenizer.

    The reference is a frozen copy of the policy; with adapters, the policy without them.
    Distillation has a teacher, and a reference only if the KL from it enters the reward, the loss
    or `kl_budget`. `only_samples`: load no value model, and no reward unless sampling depends on
    it.
    """
    config, row, environment = run.config, run.row, read_environment(run.row)
    compute, sizes, chosen = config.compute, config.sizes, config.preset.for_engine(config.engine)
    prompts = list[Prompt]()
    if environment is not None:
        limits = environment.preset
        sizes = sizes.model_copy(update={"max_new_tokens": limits.max_sampled_tokens()})
        max_length = limits.max_tokens
    else:
        prompts = list(lines.read_lines(rows.PROMPTS / "train.jsonl", Prompt))
        teacher.check_golds(prompts, chosen)
        max_length = sizes.max_new_tokens + max(
            (len(each.prompt_ids) for each in prompts), default=0
        )
    settings = Settings(config=sizes, method=chosen, seed=derive_seed(run.seed, f"train_{row.by}"))
    device, tokenizer = setup(compute), row_policy.load_row_tokenizer(row.policy, run.seed)
    pad_id = model_tokenizer.pad_id(tokenizer)

    def read(name: str, *, trained: bool = False) -> PreTrainedModel:
        return row_policy.load_row_policy(
            name, run.seed, config.model, compute, device, trained=trained
        )

    model = read(row.policy, trained=True)
    without_adapters = row_policy.add_adapters(model, config.lora, settings.seed)
    sampler = loading.make_policy_sampler(
        config.engine,
        2 if chosen.advantage == "gae" else 1,  # trained models, whose moments need memory
        model,
        tokenizer,
        source=row_policy.locate_policy(row.policy, run.seed, config.model),
        compute=compute,
        max_length=max_length,
    )
    learner = shard_model(Policy(model, compute, pad_id, without_adapters))
    initial = taught_by = None
    if chosen.measures_kl or chosen.teacher_reads_solution:
        initial = learner
        if not without_adapters:
            initial = shard_model(Policy(read(row.policy), compute, pad_id))
    if chosen.has_teacher:
        taught_by = initial
        if not chosen.teacher_reads_solution:
            taught_by = shard_model(Policy(read(teacher.find_teacher(row)), compute, pad_id))
    value = None
    if chosen.advantage == "gae" and not only_samples:
        if chosen.value_init == "policy":
            folder = row_policy.locate_policy_folder(row.policy, run.seed, config.model)
            value = scalar_head.init_scalar_model(folder, pad_id, compute, device)
        else:
            # Of an ensemble the first member: averaged weights are not averaged functions.
            folders = scalar_head.find_member_folders(reward_file.model_path(row.source, run.seed))
            value = scalar_head.load_scalar_model(folders[0], compute, device)
        row_policy.add_adapters(value, config.lora, derive_seed(settings.seed, "value"))
        value = shard_model(ScalarHead(value, compute, pad_id))
    models = RlModels(
        policy=learner, reference=initial if chosen.measures_kl else None, teacher=taught_by,
        value=value, sampler=sampler, decode=model_tokenizer.make_decode(tokenizer),
    )  # fmt: skip
    if environment is not None:
        factory, renderer = definition.load_factory(environment), TurnRenderer(tokenizer)
        player = Player(factory=factory, renderer=renderer, limits=environment.preset)
        task = episodes.make_task(player, definition.read_rows(row.source, "train"))
        return models, task, settings, tokenizer
    if only_samples and chosen.max_rounds == 1:
        reward = overlap.zero_rewards
    elif taught_by is not None:
        reward = rollout_rewards.reward_answers
    else:
        reward = rollout_rewards.load_reward(
            row.source, run.seed, compute, device, sizes.max_new_tokens
        )
    has_golds = all(prompt.answer is not None for prompt in prompts)
    checked = rollout_rewards.check_answers if has_golds else None
    task = Task(prompts=prompts, reward=reward, check_answers=checked)
    if chosen.teacher_reads_solution:
        demonstrations = lines.read_lines(row.source / "demonstrations.jsonl", Demonstration)
        begin_id: Any = tokenizer.bos_token_id
        positions = rope_limit.get_num_positions(model.config)
        limit = None if positions is None else positions - sizes.max_new_tokens
        shown = teacher.show_solutions(prompts, demonstrations, begin_id, limit)
        prompts = [prompt for prompt in prompts if prompt.id in shown]
        task = replace(task, prompts=prompts, teacher_prompts=shown)
    return models, task, settings, tokenizer


def read_environment(row: Row) -> EnvironmentFile | None:
    """The environment in the row's `on`; None: it names a reward."""
    return definition.read_environment(row.source) if row.on.startswith(FOLDER) else None


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
