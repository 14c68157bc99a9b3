"""Every training loop on tiny models, described once: its rows, the models it trains, its steps.

A case is a preset, or a loop that has none. Presets are those of presets.yaml: one that is appended
there is a case of every test over `KIND`. A new loop is a function in `START` and a row in `ROLES`.
"""

import copy
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import presets
import torch
from tiny_checkpoints import CPU, EOS, PAD, checkpoint, compute, exact, random_ids
from tiny_rollouts import (
    OPTIM,
    decode,
    even_share,
    make_demonstrations,
    make_pairs,
    make_prompts,
    make_sampler,
)  # fmt: skip
from token_episodes import ENDS, make_player, make_rows
from torch import nn
from transformers import PreTrainedModel

from stages.loops import episodes, kto, preference, process_reward, ref_logprobs, reward, rl, sft
from stages.loops.method import GroupRlConfig, Method, PpoConfig, Settings
from stages.loops.preference import PreferenceConfig
from stages.loops.process_reward import ProcessRewardConfig
from stages.loops.reward import OutcomeConfig, RewardConfig
from stages.loops.rollouts import RlModels, Rollouts, Task
from stages.loops.sft import SftConfig
from stages.loops.state import State
from stages.loops.work import Step
from stages.models import process_head, row_policy, scalar_head, sharding
from stages.models.device import ComputeConfig
from stages.models.policy import Policy, load_policy
from stages.models.process_head import ProcessHead
from stages.models.row_policy import LoraConfig
from stages.models.scalar_head import ScalarHead
from stages.records.preferences import Outcome
from stages.records.steps import StepLabels
from stages.rewards.completion_rewards import CompletionRewards

Schedule = Sequence[Sequence[int]]
FROZEN = ("reference", "teacher")
NUM_ROWS, STEP_ID = 6, 2
RATE = OPTIM | {"learning_rate": 3e-3}
EPOCHS = {"num_epochs": 1, "batch_size": NUM_ROWS, "optim": RATE}
SIZES = {"num_steps": 3, "prompts_per_step": NUM_ROWS, "temperature": 0.9, "max_new_tokens": 6,
         "num_checkpoints": 0, "optim": RATE}  # fmt: skip


def make_problems() -> list[list[Outcome]]:
    """Problems with 2 to 6 completions of different weights, whose sums are exact."""
    generator = torch.Generator().manual_seed(3)
    problems = []
    for i in range(NUM_ROWS):
        prompt_ids, sides = random_ids(generator, 2 + i % 4), ((1, 2, 4)[i % 3], 1 + i % 2)
        problems.append(
            [
                Outcome(
                    id=f"q{i}", prompt_ids=prompt_ids, right=right, weight=0.5 / number,
                    completion_ids=[*random_ids(generator, 1 + (i + j) % 4), EOS],
                )
                for right, number in zip((True, False), sides, strict=True)
                for j in range(number)
            ]
        )  # fmt: skip
    return problems


LABELS = [[1.0, 0.5], [0.0], [1.0, None, 0.25], [0.5], [0.75, 0.0, 0.0, 1.0], [0.25, None]]


def make_solutions() -> list[StepLabels]:
    """Solutions of one to four steps, some without a label; the first three of one problem."""
    generator = torch.Generator().manual_seed(0)
    prompts = [random_ids(generator, 4), random_ids(generator, 6)]
    return [
        StepLabels(
            id="ab"[i > 2], index=i, prompt="", prompt_ids=prompts[i > 2],
            steps=["x"] * len(labels), labels=labels,
            step_ids=[random_ids(generator, 1 + place) for place in range(len(labels))],
            num_completions=[4] * len(labels), true_labels=None, correct=None,
            source="math_shepherd",
        )
        for i, labels in enumerate(LABELS)
    ]  # fmt: skip


# Labels that differ, on both sides of a half: each must follow its pair.
PAIRS = [replace(pair, probability=1 - i / NUM_ROWS) for i, pair in enumerate(make_pairs(NUM_ROWS))]
CENTRING, MARGIN = 0.1, 1.5


def reward_evenness(batch: Rollouts, *, by_step: bool) -> CompletionRewards:
    """exp of the share of even tokens, so that no reward is the mean of others; by step, besides,
    each token is a step whose reward differs."""
    shares = [math.exp(share) for share in even_share(batch.texts)]
    if not by_step:
        return CompletionRewards(totals=shares)
    mask = batch.mask()
    tokens = [float(token) for sample in batch.samples for token in sample.token_ids]
    zeros = torch.zeros(mask.shape)
    steps = zeros.masked_scatter(mask, torch.tensor(tokens).sin())
    return CompletionRewards(totals=shares, step_rewards=steps, step_ends=mask)


def one_optimizer_step(name: str) -> Method:
    """The preset with one optimizer step a rollout batch, from as many prompts as it is inputs."""
    name = EPISODES.get(name, name)
    method = presets.method(name)
    changes: dict[str, Any] = {"num_epochs": 1, "num_minibatches": 1}
    changes |= {"max_rounds": 1, "overlong_buffer": 2} if method.overlong_buffer else {}
    return presets.method(name, **changes | ({"value_warmup_steps": 0} if is_ppo(method) else {}))


def several_optimizer_steps(name: str) -> Method:
    """The preset as it is, but for sizes that are too large here."""
    name = EPISODES.get(name, name)
    method = presets.method(name)
    changes: dict[str, Any] = {"num_minibatches": min(method.num_minibatches, 2)}
    changes |= {"max_rounds": 1, "overlong_buffer": 2} if method.overlong_buffer else {}
    return presets.method(name, **changes | ({"value_warmup_steps": 1} if is_ppo(method) else {}))


def is_ppo(method: Method) -> bool:
    return method.advantage == "gae"


def has_step_rewards(method: Method) -> bool:
    """Whether steps are paid, outside of episodes: where they have to be, and in PPO without a
    reward model."""
    return method.advantage == "step_zscore" or (is_ppo(method) and method.value_init == "policy")


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class SinglePrecisionSampler:
    """A sampler that works in float32 while the loop around it does in float64."""

    def __init__(self, model: PreTrainedModel, ends: frozenset[int]) -> None:
        self.sampler = make_sampler(model, ends)

    def sample(self, *prompts: Any, **settings: Any) -> Any:
        with default_dtype(torch.float32):
            return self.sampler.sample(*prompts, **settings)


@dataclass(frozen=True)
class Update:
    """An optimizer step: the gradient that it was to take, and copies of all models before it."""

    gradient: torch.Tensor
    models: dict[str, PreTrainedModel]


@torch.no_grad()
def move(parameters: Iterable[nn.Parameter], distance: float, seed: int) -> None:
    """Each weight moved at random."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        parameter.add_(distance * noise)


class Setup:
    """A loop's models, which its steps change."""

    def __init__(
        self,
        name: str,
        family: str = "llama",
        rank: int = 0,
        *,
        is_exact: bool,
        drift: float = 0.0,
        ends: frozenset[int] = frozenset([EOS]),
        path: Path | None = None,
        gradient_checkpointing: bool = False,
        **changes: Any,
    ) -> None:
        """`is_exact`: in float64. `rank`: of adapters, above 0. `changes`: of the method.

        `drift`: distance of the policy that samples from the one that is trained. `ends`: tokens
        that end a completion. `path`: the checkpoint of every model.
        """
        self.path, self.gradient_checkpointing = path, gradient_checkpointing
        self.ends = ENDS if name in EPISODES else ends
        self.name, self.family, self.rank, self.is_exact = name, family, rank, is_exact
        self.method = one_optimizer_step(name).model_copy(update=changes) if name in RL else None
        self.models = {role: self._make(role) for role in ROLES[KIND[name]]}
        trained = [model for role, model in self.models.items() if role not in FROZEN]
        self.trained = nn.ModuleList(trained)
        self.sampled, self.drift = self.models.get("policy"), drift
        if drift:
            self.sampled = copy.deepcopy(self.sampled)
            move(self.sampled.parameters(), drift, seed=5)

    def _make(self, role: str) -> PreTrainedModel:
        seed = 1 if role in (*FROZEN, "value") else 0
        path = self.path or checkpoint(self.family, seed)
        settings = compute(gradient_checkpointing=self.gradient_checkpointing)
        match role:
            case "policy" | "reference" | "teacher":
                model = load_policy(path, settings, CPU)
            case "process":
                model = process_head.init_process_model(path, STEP_ID, settings, CPU)
                for parameter in process_head.get_head(model).parameters():
                    nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
            case _:
                model = scalar_head.init_scalar_model(path, PAD, settings, CPU, head_seed=3)
        model = exact(model) if self.is_exact else model
        if role not in FROZEN:
            disable = row_policy.add_adapters(model, LoraConfig(rank=self.rank, alpha=16), seed)
            if role == "policy":
                self.disable_adapters = disable
        return model

    def read(self, role: str, settings: ComputeConfig) -> Any:
        """The model as a loop takes it."""
        if role in ("policy", *FROZEN):
            disable = self.disable_adapters if role == "policy" and self.rank else None
            return Policy(self.models[role], settings, PAD, disable)
        head = ProcessHead if role == "process" else ScalarHead
        return head(self.models[role], settings, PAD)

    def make_sampler(self, _: ComputeConfig) -> Any:
        return SinglePrecisionSampler(self.sampled, self.ends)

    def steps(
        self,
        schedule: Schedule,
        rows: Sequence[int] = range(NUM_ROWS),
        state: State | None = None,
        **limits: int,
    ) -> Iterator[Step]:
        """Steps on these rows of the loop's table, in this order; `schedule` numbers them."""
        settings = compute(**limits)
        trained = {role: self.read(role, settings) for role in self.models}
        return START[KIND[self.name]](Inputs(self, trained, rows, schedule, state))

    def take_updates(
        self, distance: float = 0.0, state: State | None = None, **limits: int
    ) -> tuple[Step, list[Update]]:
        """A step on all rows, whose optimizer steps move the weights at random by `distance`."""
        rows = range(NUM_ROWS)
        return self._take([list(rows)], rows, distance, state, **limits)

    def gradient(
        self, schedule: Schedule, rows: Sequence[int] = range(NUM_ROWS), **limits: int
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """Of one optimizer step, which is not taken, and what was logged; work aside."""
        step, updates = self._take(schedule, rows, 0.0, None, **limits)
        gradient = updates[0].gradient if updates else torch.zeros_like(self.weights())
        layout = ("work/", "batch/padding")
        return gradient, {k: v for k, v in step.metrics.items() if not k.startswith(layout)}

    def _take(
        self,
        schedule: Schedule,
        rows: Sequence[int],
        distance: float,
        state: State | None,
        **limits: int,
    ) -> tuple[Step, list[Update]]:
        updates: list[Update] = []
        gradients: dict[nn.Parameter, torch.Tensor] = {}
        parameters = list(self.trained.parameters())

        def step_optimizer(optimizer: torch.optim.Optimizer, *_: Any) -> dict[str, float]:
            inside = [p for group in optimizer.param_groups for p in group["params"]]
            for p in inside:
                gradients[p] = torch.zeros_like(p) if p.grad is None else p.grad.clone()
                p.grad = None
            if len(gradients) == len(parameters):  # PPO has two optimizers
                vector = torch.cat([gradients[p].flatten() for p in parameters])
                models = copy.deepcopy(self.models) if distance else {}
                updates.append(Update(vector, models))
                gradients.clear()
                move(parameters if distance else (), distance, seed=len(updates))
            return {"optim/grad_norm": 0.0}

        # Loops collect numbers in the default precision, that of outcomes in float32.
        is_double = self.is_exact and self.name != "outcome"
        with (
            default_dtype(torch.float64 if is_double else torch.float32),
            mock.patch("stages.loops.state.step_optimizer", step_optimizer),
            mock.patch("stages.loops.rl.step_optimizer", step_optimizer),
        ):
            (step,) = self.steps(schedule, rows, state, **limits)
        return step, updates

    def weights(self) -> torch.Tensor:
        """Of all models that are trained."""
        return torch.cat([p.detach().flatten() for p in self.trained.parameters()])


@dataclass(frozen=True)
class Inputs:
    """Arguments of a loop, but for its own rows and configuration."""

    setup: Setup
    trained: dict[str, Any]
    numbers: Sequence[int]
    schedule: Schedule
    state: State | None

    def pick(self, rows: Sequence[Any]) -> list[Any]:
        return [rows[number] for number in self.numbers]


def start_sft(inputs: Inputs) -> Iterator[Step]:
    rows, teacher = inputs.pick(make_demonstrations(NUM_ROWS)), None
    if (loss := FORWARD_KL.get(inputs.setup.name)) is not None:
        teacher = sft.Teacher(policy=inputs.trained["teacher"], loss=loss)
    config, policy = SftConfig(**EPOCHS), inputs.trained["policy"]
    return sft.train(policy, rows, inputs.schedule, config, inputs.state, teacher)


def start_preference(inputs: Inputs) -> Iterator[Step]:
    pairs, config = inputs.pick(PAIRS), PreferenceConfig(**EPOCHS, num_checkpoints=0)
    requests = ref_logprobs.list_pair_completions(pairs)
    ref = ref_logprobs.compute(inputs.trained["reference"], requests).view(-1, 2)
    loss, policy = presets.loss(inputs.setup.name), inputs.trained["policy"]
    return preference.train(policy, pairs, ref, inputs.schedule, loss, config, inputs.state)


def start_kto(inputs: Inputs) -> Iterator[Step]:
    rows = inputs.pick(kto.make_unpaired_examples(make_pairs(NUM_ROWS // 2)))
    ref = kto.compute_reference(inputs.trained["reference"], rows, inputs.schedule)
    loss, policy = presets.loss(inputs.setup.name), inputs.trained["policy"]
    config = PreferenceConfig(**EPOCHS, num_checkpoints=0)
    return kto.train(policy, rows, ref, inputs.schedule, loss, config, inputs.state)


def start_reward(inputs: Inputs) -> Iterator[Step]:
    config = RewardConfig(**EPOCHS, centring=CENTRING, margin=MARGIN)
    pairs, model = inputs.pick(PAIRS), inputs.trained["reward"]
    return reward.train(model, pairs, inputs.schedule, config, inputs.state)


def start_outcome(inputs: Inputs) -> Iterator[Step]:
    config = OutcomeConfig(**EPOCHS, max_per_problem=4, one_class_weight=0.0)
    problems, model = inputs.pick(make_problems()), inputs.trained["reward"]
    return reward.train_outcomes(model, problems, inputs.schedule, config, inputs.state)


def start_process(inputs: Inputs) -> Iterator[Step]:
    config = ProcessRewardConfig(**EPOCHS, targets={"kind": "soft"}, up_to_first_error=False)
    rows, model = inputs.pick(make_solutions()), inputs.trained["process"]
    return process_reward.train(model, rows, inputs.schedule, config, inputs.state)


def start_rl(inputs: Inputs) -> Iterator[Step]:
    method, policy = inputs.setup.method, inputs.trained["policy"]
    assert method is not None
    models = RlModels(
        policy=policy,
        reference=policy
        if inputs.setup.rank and method.measures_kl
        else inputs.trained.get("reference"),
        teacher=inputs.trained.get("teacher"),
        value=inputs.trained.get("value"),
        sampler=inputs.setup.make_sampler(inputs.trained["policy"].compute),
        decode=decode,
    )
    if inputs.setup.name in EPISODES:
        player = make_player()
        task = episodes.make_task(player, inputs.pick(make_rows(NUM_ROWS)))
        if sharding.get_rank():  # environments are those of the first process
            object.__setattr__(player, "factory", None)
    else:
        task = make_game(inputs)
    if is_ppo(method):
        config = PpoConfig(**SIZES, samples_per_prompt=3, value_optim=RATE)
    else:
        config = GroupRlConfig(**SIZES, group_size=3)
    settings = Settings(config=config, method=method, seed=0)
    return rl.train(models, task, inputs.schedule, settings, inputs.state)


def make_game(inputs: Inputs) -> Task:
    by_step = has_step_rewards(inputs.setup.method)
    prompts = inputs.pick(make_prompts(NUM_ROWS))
    return Task(
        prompts=prompts,
        reward=functools.partial(reward_evenness, by_step=by_step),
        check_answers=lambda batch: [share >= 0.5 for share in even_share(batch.texts)],
        teacher_prompts={row.id: [*row.prompt_ids, EOS, *row.prompt_ids] for row in prompts}
        if inputs.setup.method.teacher_reads_solution
        else None,
    )


START: dict[str, Callable[[Inputs], Iterator[Step]]] = {
    "sft": start_sft, "forward_kl": start_sft, "preference": start_preference,
    "kto": start_kto, "reward": start_reward,
    "outcome": start_outcome, "process": start_process, "grpo": start_rl, "ppo": start_rl,
    "distillation": start_rl,
}  # fmt: skip
ROLES = {
    "sft": ["policy"], "forward_kl": ["policy", "teacher"],
    "preference": ["policy", "reference"], "kto": ["policy", "reference"],
    "reward": ["reward"], "outcome": ["reward"], "process": ["process"],
    "grpo": ["policy", "reference"], "ppo": ["policy", "reference", "value"],
    "distillation": ["policy", "teacher"],
}  # fmt: skip
FORWARD_KL = {"forward KL and likelihood": sft.TeacherLoss(temperature=0.7, likelihood_coef=0.5)}
FORWARD_KL |= {
    name: preset.teacher
    for name in presets.SFT
    if (preset := sft.SftPreset.model_validate(presets.CONTENT[name])).teacher is not None
}
"""Cases of learning from a teacher's distribution -> the loss."""
EPISODES = {"grpo in episodes": "grpo_deepseekmath", "ppo in episodes": "ppo_process"}
"""Cases in an environment, of several turns each -> the preset."""
RL = (*presets.GROUP_RL, *presets.DISTILLATION, *presets.PPO, *EPISODES)
KIND = {name: name for name in ("sft", "reward", "outcome", "process")}
KIND |= dict.fromkeys(FORWARD_KL, "forward_kl")
KIND |= {
    name: "kto" if presets.loss(name).kind == "kto" else "preference" for name in presets.PREFERENCE
}
KIND |= dict.fromkeys(presets.GROUP_RL, "grpo") | dict.fromkeys(presets.PPO, "ppo")
KIND |= dict.fromkeys(presets.DISTILLATION, "distillation")
KIND |= {name: name.partition(" ")[0] for name in EPISODES}
"""Name of a case -> the loop."""
ONE_EACH = ("sft", "forward KL and likelihood", "dpo", "kto", "reward", "outcome", "process",
            "grpo_deepseekmath", "opd", "ppo_instructgpt", "ppo in episodes")  # fmt: skip
