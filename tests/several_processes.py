"""A few steps of a loop on a tiny model, in one or several processes that train it together."""

import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import presets
import torch
from every_loop import reward_evenness
from tiny_checkpoints import CPU, EOS, PAD, checkpoint, compute
from tiny_rollouts import (
    OPTIM,
    decode,
    draws,
    make_demonstrations,
    make_pairs,
    make_task,
)
from token_episodes import EvenGame, make_player, make_rows
from torch.optim.optimizer import register_optimizer_step_pre_hook
from transformers import PreTrainedTokenizerFast

from stages.engines import loading
from stages.loops import (
    episodes,
    kto,
    preference,
    process_reward,
    ref_logprobs,
    reward,
    rl,
    sft,
)
from stages.loops.method import GroupRlConfig, Method, PpoConfig, Settings
from stages.loops.preference import PreferenceConfig
from stages.loops.process_reward import ProcessRewardConfig
from stages.loops.reward import OutcomeConfig, RewardConfig
from stages.loops.rollouts import RlModels, Task
from stages.loops.sft import SftConfig
from stages.loops.state import State
from stages.models import policy, process_head, row_policy, scalar_head, sharding
from stages.models.policy import Policy
from stages.models.process_head import ProcessHead
from stages.models.row_policy import LoraConfig
from stages.models.scalar_head import ScalarHead
from stages.models.sharding import shard_model
from stages.records.preferences import Outcome, Preference
from stages.records.steps import StepLabels
from stages.runtime import ranks

NUM_STEPS = 4
SCHEDULE = [[0, 1, 2, 3], [4, 5, 6, 7], [3, 6, 0, 5], [2, 7, 1, 4]]
RATE = OPTIM | {"learning_rate": 3e-3, "max_grad_norm": 1e9}
SIZES = {"num_steps": NUM_STEPS, "prompts_per_step": 4, "temperature": 1.0, "max_new_tokens": 6,
         "num_checkpoints": 0, "optim": RATE}  # fmt: skip


def in_processes(number: int, work: Callable[[], Any], *, fresh: bool = False) -> Any:
    """What `work` returns in the first of `number` processes; they are children of this one.

    `fresh`: of a new interpreter. One that has compiled, as vLLM has it do, has threads that wait
    for work; in a fork nobody is left to do it.
    """
    context = multiprocessing.get_context("spawn" if fresh else "fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_first, args=(number, work, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.join()


def _first(number: int, work: Callable[[], Any], connection: Connection) -> None:
    def of_rank(_: int) -> Any:
        sharding.init_process_group()
        return work()

    torch.set_num_threads(1)
    with (
        tempfile.TemporaryDirectory() as folder,
        ranks.joined(of_rank, number, Path(folder)) as rank,
    ):
        connection.send(of_rank(rank))


class Trial:
    """The steps of one loop, and what they leave."""

    def __init__(
        self,
        loop: str,
        *,
        rank: int = 0,
        family: str = "llama",
        schedule: Any = SCHEDULE,
        engine: loading.EngineName = "transformers",
        paths: Sequence[Path] = (),
        folder: Path | None = None,
        stop: int | None = None,
        **changes: Any,
    ) -> None:
        """`folder`: to go on from; after `stop` steps the state is saved there."""
        self.loop, self.rank, self.schedule, self.engine = loop, rank, schedule, engine
        self.folder, self.stop = folder, stop
        self.compute = compute(**changes)
        # Before there are processes.
        self.paths = list(paths) or [checkpoint(family, seed) for seed in (0, 1)]

    def __call__(self) -> dict[str, Any]:
        """Metrics of each step, gradients of the first and the weights after the last."""
        first: dict[str, list[float]] = {}

        def keep(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            result = [sharding.full_tensor(p.grad).flatten().tolist() for p in parameters]
            first.setdefault("gradients", result)

        hook, history = register_optimizer_step_pre_hook(keep), []
        self.state = State.load(self.folder) if self.folder else State()
        try:
            for step in getattr(self, self.loop)():
                history.append(step.metrics)
                if len(history) == self.stop:
                    self.state.save(self.folder)
                    break
        finally:
            hook.remove()
        weights = {name: value.tolist() for name, value in policy.merged_weights(self.model)}
        held = sum(getattr(one, "to_local", lambda one=one: one)().numel()
                   for one in self.model.parameters())  # fmt: skip
        return first | {"history": history, "weights": weights, "held": held}

    def policy(self) -> Policy:
        self.model = policy.load_policy(self.paths[0], self.compute, CPU)
        without = row_policy.add_adapters(self.model, LoraConfig(rank=self.rank, alpha=16), 0)
        return shard_model(Policy(self.model, self.compute, PAD, without))

    def sft(self) -> Iterator[Any]:
        config = SftConfig(num_epochs=1, batch_size=4, optim=RATE)
        rows = make_demonstrations(8)
        return sft.train(self.policy(), rows, self.schedule, config, self.state)

    def forward_kl(self) -> Iterator[Any]:
        config = SftConfig(num_epochs=1, batch_size=4, optim=RATE)
        other = policy.load_policy(self.paths[1], self.compute, CPU, trained=False)
        frozen = shard_model(Policy(other, self.compute, PAD))
        loss = sft.TeacherLoss(temperature=0.7, likelihood_coef=0.5)
        teacher, rows = sft.Teacher(policy=frozen, loss=loss), make_demonstrations(8)
        return sft.train(self.policy(), rows, self.schedule, config, self.state, teacher)

    def dpo(self) -> Iterator[Any]:
        config = PreferenceConfig(num_epochs=1, batch_size=4, num_checkpoints=0, optim=RATE)
        model, pairs = self.policy(), make_pairs(8)
        wanted = ref_logprobs.list_pair_completions(pairs)
        ref = ref_logprobs.compute(model, wanted).view(-1, 2)
        loss = presets.loss("dpo")
        return preference.train(model, pairs, ref, self.schedule, loss, config, self.state)

    def kto(self) -> Iterator[Any]:
        config = PreferenceConfig(num_epochs=1, batch_size=4, num_checkpoints=0, optim=RATE)
        model, rows = self.policy(), kto.make_unpaired_examples(make_pairs(4))
        ref = kto.compute_reference(model, rows, self.schedule)
        loss = presets.loss("kto")
        return kto.train(model, rows, ref, self.schedule, loss, config, self.state)

    def reward(self) -> Iterator[Any]:
        config = RewardConfig(num_epochs=1, batch_size=4, centring=0.01, margin=0.0, optim=RATE)
        model = self.scalar()
        self.model = model.model
        return reward.train(model, make_pairs(8), self.schedule, config, self.state)

    def outcome(self) -> Iterator[Any]:
        sizes = {"num_epochs": 1, "batch_size": 4, "optim": RATE}
        config = OutcomeConfig(max_per_problem=2, one_class_weight=0.0, **sizes)
        model = self.scalar()
        self.model, problems = model.model, map(judged, make_pairs(8))
        return reward.train_outcomes(model, list(problems), self.schedule, config, self.state)

    def process(self) -> Iterator[Any]:
        config = ProcessRewardConfig(
            targets={"kind": "soft"}, up_to_first_error=False, num_epochs=1,
            batch_size=4, optim=RATE,
        )  # fmt: skip
        self.model = process_head.init_process_model(self.paths[1], 2, self.compute, CPU)
        row_policy.add_adapters(self.model, LoraConfig(rank=self.rank, alpha=16), 1)
        model = shard_model(ProcessHead(self.model, self.compute, PAD))
        return process_reward.train(model, labelled(8), self.schedule, config, self.state)

    def scalar(self) -> ScalarHead:
        path = self.paths[1]
        model = scalar_head.init_scalar_model(path, PAD, self.compute, CPU, head_seed=3)
        row_policy.add_adapters(model, LoraConfig(rank=self.rank, alpha=16), 1)
        return shard_model(ScalarHead(model, self.compute, PAD))

    def grpo(self, **changes: Any) -> Iterator[Any]:
        return self.group_rl(*self.game(), presets.method(**changes))

    def group_rl(self, models: RlModels, task: Task, method: Method) -> Iterator[Any]:
        settings = Settings(config=GroupRlConfig(**SIZES, group_size=4), method=method, seed=0)
        return rl.train(models, task, draws(8, NUM_STEPS, 4, seed=0), settings, self.state)

    def grpo_steps(self) -> Iterator[Any]:
        """Rewards of steps, each token one."""
        models, task = self.game()
        task = replace(task, reward=partial(reward_evenness, by_step=True))
        return self.group_rl(models, task, presets.method("grpo_process"))

    def distillation(self) -> Iterator[Any]:
        models, task = self.game()
        other = policy.load_policy(self.paths[1], self.compute, CPU, trained=False)
        models = replace(models, teacher=shard_model(Policy(other, self.compute, PAD)))
        return self.group_rl(models, task, presets.method("opd", reward_coef=0.5))

    def grpo_twice(self) -> Iterator[Any]:
        return self.grpo(num_epochs=2, num_minibatches=2)

    def grpo_in_episodes(self) -> Iterator[Any]:
        """Environments run in the first process alone."""
        sizes = SIZES | {"max_new_tokens": 30}
        config = GroupRlConfig(**sizes, group_size=4)
        settings = Settings(config=config, method=presets.method(), seed=0)
        factory = EvenGame if sharding.get_rank() == 0 else None
        player = make_player(EvenGame, max_turn_tokens=12)
        task = episodes.make_task(player, make_rows(8))
        object.__setattr__(player, "factory", factory)
        models, _ = self.game(max_length=60)
        return rl.train(models, task, draws(8, NUM_STEPS, 4, seed=0), settings, self.state)

    def ppo(self) -> Iterator[Any]:
        config = PpoConfig(**SIZES, samples_per_prompt=4, value_optim=RATE)
        models, task = self.game()
        models = replace(models, value=self.scalar())
        method = presets.method("ppo_instructgpt", num_minibatches=2)
        settings = Settings(config=config, method=method, seed=0)
        return rl.train(models, task, draws(8, NUM_STEPS, 4, seed=0), settings, self.state)

    def game(self, max_length: int = 32) -> tuple[RlModels, Task]:
        learner = self.policy()
        frozen = policy.load_policy(self.paths[0], self.compute, CPU, trained=False)
        sampler = loading.make_policy_sampler(
            self.engine, 1, self.model, tokenizer(), source=(self.paths[0], None),
            compute=self.compute, max_length=max_length,
        )  # fmt: skip
        models = RlModels(
            policy=learner,
            reference=learner if self.rank else shard_model(Policy(frozen, self.compute, PAD)),
            sampler=sampler, decode=decode,
        )  # fmt: skip
        return models, make_task()


def judged(pair: Preference) -> list[Outcome]:
    """A problem with a right and a wrong completion."""
    sides = ((pair.chosen_ids, True), (pair.rejected_ids, False))
    same = {"id": pair.id, "prompt_ids": pair.prompt_ids, "weight": 0.5}
    return [Outcome(completion_ids=ids, right=right, **same) for ids, right in sides]


def labelled(number: int) -> list[StepLabels]:
    """Solutions of one to three steps, the last of each step labelled."""
    pairs = make_pairs(number)
    return [
        StepLabels(
            id=pair.id, index=0, prompt="", prompt_ids=pair.prompt_ids, steps=["x"] * (1 + i % 3),
            step_ids=[pair.chosen_ids] * (1 + i % 3), labels=[0.25 * (i % 5)] * (1 + i % 3),
            num_completions=[4] * (1 + i % 3), true_labels=None, correct=None,
            source="math_shepherd",
        )
        for i, pair in enumerate(pairs)
    ]  # fmt: skip


def tokenizer() -> PreTrainedTokenizerFast:
    """Enough of one to say which tokens end and pad."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = {"<pad>": PAD, "<eos>": EOS}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words)), pad_token="<pad>", eos_token="<eos>"
    )
