"""Training loop of GRPO, PPO and their relatives, whose choices are a `Method`.

    for each step
        draw         sample several completions of each prompt from the policy, or from the one
                     `staleness` steps before, and score them
        estimate     advantages: rewards less a baseline, the group's mean (GRPO) or a value model
                     (PPO); in distillation, the teacher's log-probs less the policy's
        learn        for each epoch and mini-batch, one optimizer step on
                         aggregate(correction * surrogate(importance ratio, advantage)
                                   + kl_coef * KL - entropy_coef * entropy)
                         + positive_nll_coef * mean negative log-likelihood of the tokens of right
                                               completions

The steps are the methods of `Trainer`; `train` is the loop. They pass on an `Experience`, a rollout
batch that gains fields: rewards and frozen log-probs when drawn, then advantages and mini-batches.

The completions of one prompt are a group; a `Grid` is [completion, token], laid out as
`Rollouts.mask()`. Invariants, each of which a test holds: the gradient does not depend on the
number, order, padding or packing of micro-batches; before the first update of a rollout batch the
importance ratio is exactly 1.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from stages.algorithms import aggregation, group_advantages, kl, token_advantages
from stages.algorithms.aggregation import masked_mean, masked_sum, masked_whiten
from stages.algorithms.length_and_repetition import soft_overlong
from stages.algorithms.losses import importance_ratios, surrogates
from stages.algorithms.losses.reward_and_value_losses import clipped_value_loss
from stages.loops import epochs, overlap, own_method, rollouts, work
from stages.loops.method import Method, PpoConfig, RlConfig, Settings
from stages.loops.rollouts import RlModels, Rollouts, Task
from stages.loops.state import State
from stages.loops.work import Step
from stages.models import sharding
from stages.models.batch import Batch, eval_no_grad
from stages.models.policy import Policy, TokenLogprobs
from stages.optim import step_optimizer
from stages.own_modules import get_own_word
from stages.records.problems import Prompt
from stages.rewards import completion_rewards as rewarding
from stages.rewards.completion_rewards import CompletionRewards
from stages.runtime import process
from stages.runtime.forked_process import ForkedProcess
from stages.sampler import ColocatedSampler
from stages.seeding import derive_seed

Grid = Float[Tensor, "completion token"]
Mask = Bool[Tensor, "completion token"]
Flags = Bool[Tensor, " completion"]
BatchGrid = Float[Tensor, "_ _"]
"""A `Grid` of one micro-batch among others, whose shapes differ."""
Metrics = dict[str, int | float]

# On a GPU, torch may choose another kernel when gradients are on, with other rounding.
FIRST_RATIO_TOLERANCE = {"cpu": 0.0, "cuda": 0.05}
KL_ESTIMATORS = {"k1": kl.k1, "k2": kl.k2, "k3": kl.k3}
CHOICES: dict[str, dict[str, tuple[Callable[..., Any], dict[str, str]]]] = {
    "advantage": {
        "group_zscore": (group_advantages.group_zscore, {"ddof": "ddof", "eps": "eps"}),
        "group_centred": (group_advantages.group_centred, {}),
        "mean_normalised": (group_advantages.mean_normalised, {"eps": "eps"}),
        "batch_std": (group_advantages.batch_std, {"ddof": "ddof", "eps": "eps"}),
        "leave_one_out": (group_advantages.leave_one_out, {}),
    },
    "surrogate": {
        "clip": (surrogates.clipped_surrogate, {"low": "clip_low", "high": "clip_high"}),
        "dual_clip": (
            surrogates.dual_clip_surrogate,
            {"low": "clip_low", "high": "clip_high", "cap": "dual_clip_cap"},
        ),
        "sequence_ratio": (
            surrogates.sequence_ratio_surrogate,
            {"low": "clip_low", "high": "clip_high", "normalise": "normalise_ratio"},
        ),
        "cispo": (surrogates.cispo, {"cap": "max_ratio"}),
        "reinforce": (lambda new, _old, *inputs: surrogates.reinforce(new, *inputs), {}),
        "kl_penalty": (surrogates.kl_penalty_surrogate, {"beta": "old_kl_coef"}),
    },
    "correction": {
        "none": (lambda old, *_: torch.ones_like(old), {}),
        "token_truncated": (importance_ratios.token_truncated, {"cap": "correction_cap"}),
        "token_masked": (
            importance_ratios.token_masked, {"low": "correction_low", "high": "correction_high"},
        ),
        "sequence_truncated": (importance_ratios.sequence_truncated, {"cap": "correction_cap"}),
        "sequence_masked": (
            importance_ratios.sequence_masked, {"low": "correction_low", "high": "correction_high"},
        ),
    },
}  # fmt: skip
"""Choice of a `Method` -> its value -> the function of `algorithms`, and its arguments with the
fields of `Method` that are their values. Advantages that need more than the rewards of groups are
in `compute_reward_advantages`."""


def apply_choice(choice: str, method: Method, *inputs: Tensor, **more: Any) -> Any:
    """Result of the function that the method chooses, called with the method's hyperparameters."""
    value = getattr(method, choice)
    if (word := get_own_word(value)) is not None:
        return own_method.load(choice, word)(*inputs, **more)
    function, fields = CHOICES[choice][value]
    return function(*inputs, **{name: getattr(method, key) for name, key in fields.items()}, **more)


# --- Length of a run


def estimate_updates(method: Method, num_steps: int, index: int, spent: int) -> int:
    """Optimizer steps of a whole training run, as estimated after sampling for step `index`.

    The learning rate is a function of (i + 1) / S, with i the present step (from 0) and S the
    number of all steps. Without a token budget, S = `num_steps`. With a token budget, S depends on
    the lengths of later completions, so it is estimated from the tokens `spent` by i + 1 steps:

        S = (i + 1) token_budget / spent

    Then (i + 1) / S = spent / token_budget: a warm-up of 5 % lasts for 5 % of the tokens.
    """
    per_step = method.num_epochs * method.num_minibatches
    if method.token_budget is None:
        return num_steps * per_step
    estimate = round((index + 1) * per_step * method.token_budget / spent)
    # The step that goes over the budget is the last.
    return max(estimate, (index + 1) * per_step)


def make_schedule(task: Task, settings: Settings) -> Iterable[Sequence[int]]:
    """Prompt numbers of each step: `num_steps` lists, or endless ones with a `token_budget`."""
    batches = epochs.endless_batches(len(task.prompts), settings.max_prompts(), settings.seed)
    endless = settings.method.token_budget is not None
    return batches if endless else islice(batches, settings.config.num_steps)


# --- The loop


@dataclass(frozen=True, kw_only=True)
class TokenGrids:
    """Tensors over the tokens of a rollout batch or micro-batch; 0 outside of completions."""

    sampler_logprobs: Grid
    advantages: Grid
    """0 at tokens of completions outside the loss."""
    right: Mask
    """Tokens of right completions."""
    ref_logprobs: Grid | None = None
    """None without a reference."""
    old_logprobs: Grid | None = None
    """Computed with the micro-batches of the update, so that the first importance ratio is exactly
    1. None with a single update: then they are the detached log-probs of its forward pass."""
    values: Grid | None = None
    """Predictions of the value model before its update; None without one."""
    returns: Grid | None = None
    """Regression targets of the value model; None without one."""

    def rows_of(self, batch: Batch) -> "TokenGrids":
        """The completions of a micro-batch of this rollout batch, on its device."""
        device, width = batch.mask.device, batch.mask.shape[1]
        rows: dict[str, Any] = {
            name: None if grid is None else grid[batch.indices, :width].to(device)
            for name, grid in vars(self).items()
        }
        return TokenGrids(**rows)


@dataclass(frozen=True, kw_only=True)
class Minibatch:
    """Completions of one optimizer step; the counts include completions without a gradient."""

    batches: list[Batch]
    """Micro-batches of the completions that have a gradient."""
    num_tokens: int
    """Tokens that count in the loss."""
    num_sequences: int
    """Completions, masked ones included."""
    num_right_tokens: int
    """Tokens of right completions that have a gradient."""


@dataclass(kw_only=True)
class Experience:
    """Rollout batch with the tensors that a step learns from; none has a gradient.

    `Trainer.draw` makes it, with rewards and the frozen models' log-probs; `Trainer.estimate` adds
    the rest.
    """

    rollouts: Rollouts
    rewards: CompletionRewards
    used: Flags
    """True for completions that are learned from."""
    num_rounds: int = 1
    """Number of rounds of dynamic sampling."""
    greedy_rewards: Float[Tensor, " completion"] | None = None
    """Reward of the greedy completion of each completion's prompt; None unless the advantage is
    `greedy_baseline`."""
    greedy_counts: dict[str, int] = field(default_factory=dict[str, int])
    """Counts of tokens and forward passes of the greedy completions."""
    calls: list[Rollouts] = field(default_factory=list[Rollouts])
    """Rollouts that each call of the sampler returned."""
    frozen: dict[str, Grid] = field(default_factory=dict[str, Grid])
    """Log-probs under `reference` and `teacher`, if there are any. They do not depend on the
    policy's weights, so the sampler process may compute them."""
    frozen_counts: dict[str, int] = field(default_factory=dict[str, int])
    """Number of tokens that each of the two read."""
    verdicts: list[bool] = field(init=False)
    """Verdict of the answer checker on each completion."""
    minibatches: list[Minibatch] = field(init=False)
    grids: TokenGrids = field(init=False)
    metrics: Metrics = field(init=False)

    @cached_property
    def content(self) -> dict[str, Any]:
        """JSON content for a checkpoint, from which `draw` restores the batch without sampling.

        Rewards are not part of it: `draw` computes them again. Cached, since a batch may be
        in several checkpoints.
        """
        mask = self.rollouts.mask()
        return {
            "calls": [rollouts.STORED.dump_python(call) for call in self.calls],
            "frozen": {name: grid[mask].tolist() for name, grid in self.frozen.items()},
            "counts": self.frozen_counts,
        }

    def batches(self) -> list[Batch]:
        """The micro-batches of all mini-batches."""
        return [batch for minibatch in self.minibatches for batch in minibatch.batches]


def train(
    models: RlModels,
    task: Task,
    schedule: Iterable[Sequence[int]],
    settings: Settings,
    state: State | None = None,
    sampler_process: ForkedProcess | None = None,
) -> Iterator[Step]:
    """Policy gradient training: a step for each list of prompt numbers in `schedule`.

    Policy and value model are changed in place. Training ends early when `token_budget` or
    `kl_budget` is exceeded; a ValueError if the tokens do not last beyond the value model's
    warm-up. `state` is updated before each step is yielded; a run that resumes from a saved state
    has the same result, bit by bit.

    Rollout batches are drawn ahead: step 0 first draws the batches 0 to `staleness`, a later step n
    the batch n + `staleness`; only then does it learn from batch n. So the weights that sample a
    batch are those of `Method.staleness`. The `numbers` of a `State` also hold the `content` of the
    pending batches, in order, and whether a budget has ended the training. `sampler_process`: see
    `overlap`.
    """
    config, method = settings.config, settings.method
    sampling_trainer = Trainer(models=models, task=task, settings=settings)
    state = state or State()
    optimizers = make_optimizers(models, config, state)
    numbers = state.numbers
    first_coefs = 0.0 if method.kl == "none" else method.kl_coef, method.old_kl_coef
    kl_coef, old_kl_coef = numbers.get("coefs", first_coefs)
    method = method.model_copy(update={"kl_coef": kl_coef, "old_kl_coef": old_kl_coef})
    num_truncated_steps, is_over = numbers.get("num_truncated_steps", 0), numbers.get("over", False)
    spent = numbers.get("spent", 0)
    stored = deque(numbers.get("waiting", ()))
    waiting: deque[Callable[[], Experience]] = deque()
    undrawn = enumerate(islice(schedule, state.step, None), state.step)

    with overlap.drawing(sampling_trainer, sampler_process) as start_draw:
        while not is_over:
            for number, prompt_numbers in islice(undrawn, method.staleness + 1 - len(waiting)):
                content = stored.popleft() if stored else None
                waiting.append(start_draw(number, prompt_numbers, content))
            if not waiting:
                return
            index = state.step
            experience = waiting.popleft()()
            trainer = replace(sampling_trainer, settings=replace(settings, method=method))
            trainer.estimate(experience, index)
            process.check_stop()  # a reward or an environment may have caught the exception
            if isinstance(models.sampler, ColocatedSampler):
                models.sampler.sleep()
            num_truncated_steps = rollouts.count_truncated_steps(
                experience.rollouts, num_truncated_steps
            )
            before = experience.metrics
            spent += int(before["tokens/generated"]) + int(before["tokens/trained"])
            num_updates = estimate_updates(method, config.num_steps, index, spent)
            metrics = trainer.learn(optimizers, experience, index, num_updates)
            if is_policy_trained(method, index):
                method = adapt_coefs(method, metrics, len(experience.verdicts))
            kl_exceeded = method.kl_budget is not None and metrics["kl/sequence"] > method.kl_budget
            is_spent = method.token_budget is not None and spent >= method.token_budget
            if is_spent and not is_policy_trained(method, index):
                raise ValueError(
                    f"token_budget {method.token_budget} is spent after {index + 1} steps, within "
                    f"value_warmup_steps {method.value_warmup_steps}, when only the value model "
                    f"learns, so the policy would not: raise token_budget, or lower "
                    f"value_warmup_steps"
                )
            is_over = kl_exceeded or is_spent
            state.step, state.numbers = index + 1, {
                "coefs": [method.kl_coef, method.old_kl_coef],  # of the next step
                "num_truncated_steps": num_truncated_steps, "spent": spent, "over": is_over,
                "waiting": [wait().content for wait in waiting],
            }  # fmt: skip
            rows = rollouts.make_rows(
                experience.rollouts, index, experience.rewards.rewards(),
                None if task.check_answers is None else experience.verdicts,
            )  # fmt: skip
            yield Step(index=index, metrics=metrics, rows=rows)


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """Models, task and settings of a step, with its parts as methods: draw, estimate, learn.

    Its method has the KL coefficients of the step.
    """

    models: RlModels
    task: Task
    settings: Settings

    def draw(
        self, index: int, prompt_numbers: Sequence[int], stored: Mapping[str, Any] | None = None
    ) -> Experience:
        """Sample and reward the completions of rollout batch `index` with the present weights.

        `prompt_numbers`: numbers of its prompts in `task.prompts`. `stored`: the `content` of this
        batch, if it was sampled before; then only its rewards are computed.
        """
        config, task = self.settings.config, self.task
        prompts = [task.prompts[number] for number in prompt_numbers]
        calls = list[Rollouts]()
        if stored:
            calls = [rollouts.STORED.validate_python(call) for call in stored["calls"]]
        remaining = iter([*calls])

        def draw(prompts: Sequence[Prompt], *, group_size: int | None) -> Rollouts:
            if stored:
                if (call := next(remaining, None)) is not None:
                    return call
                raise ValueError(
                    f"expected the same rewards of rollout batch {index} as when it was "
                    f"sampled, found others, which need more rounds: make the reward a function of "
                    f"the text"
                )
            calls.append(
                task.draw(
                    self.models.sampler, self.models.decode, prompts, config=config,
                    group_size=group_size, step=index, seed=self.settings.seed,
                )
            )  # fmt: skip
            return calls[-1]

        def reward(batch: Rollouts) -> CompletionRewards:
            limit = config.max_new_tokens
            # A reward need not be a function of the text: the ranks learn from the same rewards.
            rewards = sharding.broadcast_from_rank0(task.reward(batch))
            return subtract_length_penalties(rewards, batch, self.settings.method, limit)

        experience = sample_and_reward(draw, reward, prompts, config, self.settings.method)
        experience.calls, mask = calls, experience.rollouts.mask()
        if stored:
            experience.frozen_counts = stored["counts"]
            experience.frozen = {
                name: torch.zeros(mask.shape).masked_scatter(mask, torch.tensor(values))
                for name, values in stored["frozen"].items()
            }
        else:
            self.add_frozen_logprobs(experience)
        return experience

    def add_frozen_logprobs(self, experience: Experience) -> None:
        """Add log-probs under reference and teacher; the reference reads no failed episodes."""
        models, batch, teacher_prompts = self.models, experience.rollouts, self.task.teacher_prompts
        shown = batch
        if teacher_prompts is not None:
            prompts = [replace(row, prompt_ids=[*teacher_prompts[row.id]]) for row in batch.prompts]
            shown = replace(batch, prompts=prompts)
        every = torch.ones_like(batch.failed())
        for name, model, read, counted in (
            ("reference", models.reference, batch, ~batch.failed()),
            ("teacher", models.teacher, shown, every),
        ):
            if model is not None:
                batches, mask = rollouts.make_batches(models, read, counted), batch.mask()
                experience.frozen[name] = logprob_grid_no_grad(
                    model, batches, mask & counted[:, None], self.settings.config.temperature
                )
                experience.frozen_counts |= work.count_batch_passes(name, "read", batches)

    def estimate(self, experience: Experience, index: int) -> None:
        """Add the advantages of a rollout batch, its KL and its split into mini-batches.

        A completion with advantage 0 is left out of the optimizer step's forward and backward
        passes, unless another term of the loss (KL, entropy, negative log-likelihood) has a
        gradient there. Metrics of these passes (`entropy`, `kl/old`, `clip_fraction`) are means
        over the tokens of those that remain.
        """
        method, task = self.settings.method, self.task
        batch, rewards, used = experience.rollouts, experience.rewards, experience.used
        verdicts = task.verdicts(batch)
        right = torch.tensor(verdicts)
        in_baseline, in_loss = (used & mask for mask in truncation_masks(batch.truncated(), method))
        logged_verdicts = None if task.check_answers is None else verdicts
        metrics = rollouts.summarise_rollouts(batch, rewards, logged_verdicts)
        work.add_counts(metrics, experience.greedy_counts)
        logprobs, logprob_metrics = self.measure_logprobs(batch, index)
        ref_logprobs = experience.frozen.get("reference")
        penalties, kl_metrics = measure_kl(batch, method, logprobs, ref_logprobs)
        has_gradient = in_loss
        # With a value model the micro-batches come before the advantages; without one, completions
        # with no advantage are left out of them.
        if self.models.value is not None:
            experience.minibatches = self.make_minibatches(
                batch, index, used, in_loss, has_gradient, right
            )
            mask = batch.mask() & in_loss[:, None]
            estimates, advantage_metrics = compute_gae(
                self.models.value, experience.batches(), method, rewards, penalties, mask
            )
        else:
            advantage_metrics: Metrics = {
                "sampling/rounds": experience.num_rounds,
                "sampling/used": used.float().mean().item(),
            }
            if (teacher_logprobs := experience.frozen.get("teacher")) is None:
                advantages = compute_reward_advantages(
                    method, rewards, penalties, batch, in_baseline, experience.greedy_rewards
                )
            else:
                advantages = compute_teacher_advantages(
                    method, rewards, penalties, batch, in_baseline, logprobs, teacher_logprobs
                )
                # An unbiased estimate of KL(policy || teacher) per token.
                k1 = kl.k1(batch.sampler_logprobs(), teacher_logprobs)
                advantage_metrics["kl/teacher"] = masked_mean(k1, batch.mask()).item()
            advantage_metrics["advantage/zero_share"] = (
                (advantages == 0).all(1).float().mean().item()
            )
            if not method.trains_on_zero_advantages():
                has_gradient = in_loss & (advantages != 0).any(1)
            experience.minibatches = self.make_minibatches(
                batch, index, used, in_loss, has_gradient, right
            )
            estimates = {"advantages": advantages}
        metrics |= logprob_metrics | kl_metrics | experience.frozen_counts | advantage_metrics
        num_tokens = sum(int(each.mask.sum()) for each in experience.batches())
        metrics["tokens/trained"] = method.num_epochs * num_tokens
        experience.verdicts, experience.metrics = verdicts, metrics
        experience.grids = TokenGrids(
            sampler_logprobs=batch.sampler_logprobs(), right=batch.mask() & right[:, None],
            ref_logprobs=ref_logprobs, **estimates,
        )  # fmt: skip

    def measure_logprobs(self, batch: Rollouts, index: int) -> tuple[Grid, Metrics]:
        """Log-probs for a KL penalty in the reward or for a teacher's advantages, and metrics.

        They are the sampler's, unless the batch is stale and the method uses them
        (`Method.needs_policy_logprobs`): then they are computed with the weights at the start of
        the step, the policy of penalty and advantages. `correction` accounts for the older weights
        that sampled the completions.
        """
        method, sampler_logprobs = self.settings.method, batch.sampler_logprobs()
        if not method.staleness:
            return sampler_logprobs, {}
        metrics: Metrics = {"sampling/staleness": method.lag(index)}
        if method.lag(index) == 0 or not method.needs_policy_logprobs:
            return sampler_logprobs, metrics
        batches = rollouts.make_batches(self.models, batch, ~batch.failed())
        logprobs = logprob_grid_no_grad(
            self.models.policy,
            batches,
            batch.mask(),
            self.settings.config.temperature,
            adapted=True,
        )
        return logprobs, metrics | work.count_batch_passes("policy", "read", batches)

    def make_minibatches(
        self,
        batch: Rollouts,
        index: int,
        used: Flags,
        in_loss: Flags,
        has_gradient: Flags,
        right: Flags,
    ) -> list[Minibatch]:
        """Mini-batches of a rollout batch, in shuffled order of prompts; a group stays together.

        A mean over completions divides by the number of those in `used`, a mean over tokens by the
        tokens of those in `in_loss`. Only those in `has_gradient` pass through the model. `right`:
        correct by the answer checker.
        """
        lengths, prompt_of = batch.mask().sum(1), torch.tensor(batch.groups)
        prompts = prompt_of[used].unique()
        seed = derive_seed(self.settings.seed, "minibatches", index)
        order = np.random.default_rng(seed).permutation(len(prompts))
        minibatches: list[Minibatch] = []
        for numbers in np.array_split(order, self.settings.method.num_minibatches):
            inside = torch.isin(prompt_of, prompts[numbers.tolist()])
            minibatches.append(
                Minibatch(
                    batches=rollouts.make_batches(self.models, batch, inside & has_gradient),
                    num_tokens=int(lengths[inside & in_loss].sum()),
                    num_sequences=int((inside & used).sum()),
                    num_right_tokens=int(lengths[inside & has_gradient & right].sum()),
                )
            )
        return minibatches

    def learn(
        self,
        optimizers: dict[str, torch.optim.Optimizer],
        experience: Experience,
        index: int,
        run_updates: int,
    ) -> Metrics:
        """Take an optimizer step for each mini-batch of each epoch over rollout batch `index`.

        Returns the metrics of the step: those from before its updates, `optim/*` of the last
        optimizer step, `kl/old_after` after it, `kl/coef`, counts of passes, and all others as
        means over the optimizer steps. `run_updates`: optimizer steps of the whole training run, by
        the present estimate (`estimate_updates`). The schedule of the policy's learning rate begins
        after the `value_warmup_steps`.
        """
        models, config, method = self.models, self.settings.config, self.settings.method
        minibatches = experience.minibatches
        per_step = method.num_epochs * method.num_minibatches
        first, trains_policy = index * per_step, is_policy_trained(method, index)
        warmup_updates = method.value_warmup_steps * per_step
        keeps_old = trains_policy and (per_step > 1 or method.surrogate == "kl_penalty")
        if keeps_old:
            old_logprobs = logprob_grid_no_grad(
                models.policy, experience.batches(), experience.rollouts.mask(),
                config.temperature, adapted=True,
            )  # fmt: skip
            experience.grids = replace(experience.grids, old_logprobs=old_logprobs)
        batch_updates = method.num_epochs * sum(
            bool(minibatch.batches) for minibatch in minibatches
        )
        # A step without a gradient cannot show how far an update moves the policy.
        measures_old_kl = trains_policy and method.surrogate == "kl_penalty" and batch_updates > 0
        metrics: Metrics = {**experience.metrics, "kl/coef": method.kl_coef}
        for number, minibatch in enumerate(minibatches * method.num_epochs, first):
            if not minibatch.batches:
                continue
            means: dict[str, float] = {}
            if models.value is not None:
                assert isinstance(config, PpoConfig)
                means["loss/value"] = self.add_value_gradient(minibatch, experience)
                norms = step_optimizer(optimizers["value"], config.value_optim, number, run_updates)
                metrics["optim/value_grad_norm"] = norms["optim/grad_norm"]
            if trains_policy:
                means |= self.add_policy_gradient(
                    minibatch, experience.grids, is_first_update=number == first
                )
                if method.lag(index) == 0:
                    rollouts.check_sampler_gap(means["sampling/logprob_gap"])
                metrics |= step_optimizer(
                    optimizers["policy"],
                    config.optim,
                    number - warmup_updates,
                    run_updates - warmup_updates,
                )
            for name, mean in means.items():
                metrics[name] = metrics.get(name, 0.0) + mean / batch_updates
        if measures_old_kl:
            metrics["kl/old_after"] = self.measure_old_kl(experience)
        batches = experience.batches()
        num_frozen = int(keeps_old) + int(measures_old_kl)
        num_trained = method.num_epochs * trains_policy
        # The policy has read a stale batch once more (`measure_logprobs`).
        work.add_counts(
            metrics, work.count_batch_passes("policy", "read", batches, times=num_frozen)
        )
        metrics |= work.count_batch_passes("policy", "trained", batches, times=num_trained)
        if models.value is not None:
            times = method.num_epochs
            metrics |= work.count_batch_passes(
                "value", "trained", batches, times=times, logits=False
            )
        return metrics

    def add_policy_gradient(
        self,
        minibatch: Minibatch,
        of_rollouts: TokenGrids,
        *,
        is_first_update: bool,
    ) -> dict[str, float]:
        """Add the gradient of `policy_loss` on a mini-batch; returns the loss and token means."""
        settings, method = self.settings, self.settings.method
        sums: dict[str, float] = {}
        for batch in minibatch.batches:
            new = self.models.policy(
                batch,
                temperature=settings.config.temperature,
                entropy_gradient=method.entropy_coef > 0,
            )
            grids, mask = of_rollouts.rows_of(batch), batch.mask
            old = new.logprobs.detach() if grids.old_logprobs is None else grids.old_logprobs
            if is_first_update and grids.old_logprobs is not None:
                check_first_ratio(new.logprobs, old)
            loss, is_clipped = policy_loss(new, old, grids, mask, minibatch, settings)
            loss.backward()
            with torch.no_grad():
                of_batch = {
                    "loss/policy": loss,
                    "entropy": masked_sum(new.entropies, mask),
                    "clip_fraction": masked_sum(is_clipped.float(), mask),
                    "kl/old": masked_sum(kl.k3(old, new.logprobs), mask),
                    "sampling/logprob_gap": masked_sum((grids.sampler_logprobs - old).abs(), mask),
                }
            for name, value in of_batch.items():
                sums[name] = sums.get(name, 0.0) + value.item()
        num_tokens = max(1, sum(int(batch.mask.sum()) for batch in minibatch.batches))
        return {
            name: value if name == "loss/policy" else value / num_tokens
            for name, value in sums.items()
        }

    def measure_old_kl(self, experience: Experience) -> float:
        """KL(old || policy) per token, after the last update, on the tokens in the loss.

        Estimated without bias under the old policy, which sampled them: exp(d) - 1 - d with
        d = log policy - log old. It adapts `old_kl_coef` (Schulman et al. 2017, section 4, also
        measure it after the updates).
        """
        batches = experience.batches()
        new = logprobs_no_grad(self.models.policy, batches, self.settings.config.temperature)
        total, num_tokens = 0.0, 0
        for batch, after in zip(batches, new, strict=True):
            before = experience.grids.rows_of(batch).old_logprobs
            assert before is not None, "the old log-probs were not kept"
            total += masked_sum(kl.k3(before, after), batch.mask).item()
            num_tokens += int(batch.mask.sum())
        return total / max(1, num_tokens)

    def add_value_gradient(self, minibatch: Minibatch, experience: Experience) -> float:
        """Add the gradient of `value_coef` times the mean value loss per token; returns it."""
        models, method = self.models, self.settings.method
        assert models.value is not None
        total, clip = 0.0, torch.inf if method.value_clip is None else method.value_clip
        for batch in minibatch.batches:
            grids = experience.grids.rows_of(batch)
            assert grids.values is not None and grids.returns is not None  # noqa: PT018
            values = models.value(batch, each_token=True)
            losses = clipped_value_loss(values, grids.values, grids.returns, clip=clip)
            loss = aggregation.token_mean(losses, batch.mask, num_tokens=minibatch.num_tokens)
            (method.value_coef * loss).backward()
            total += loss.item()
        return total


def make_optimizers(
    models: RlModels, config: RlConfig, state: State
) -> dict[str, torch.optim.Optimizer]:
    """AdamW of the policy and, in PPO, of the value model, both restored from a loaded state."""
    optimizers = {"policy": state.optimizer("policy", models.policy.train(), config.optim)}
    if models.value is not None:
        assert isinstance(config, PpoConfig)
        optimizers["value"] = state.optimizer("value", models.value.train(), config.value_optim)
    return optimizers


def is_policy_trained(method: Method, index: int) -> bool:
    """False in the first steps of PPO, in which only the value model learns."""
    return method.advantage != "gae" or index >= method.value_warmup_steps


def adapt_coefs(method: Method, metrics: Metrics, num_samples: int) -> Method:
    """The method of the next step: adaptive KL coefficients follow the divergences in `metrics`.

    After a step without an update, the coefficient of the old policy's divergence stays.
    """
    coefs: dict[str, float] = {}
    if method.kl_target is not None:
        coefs["kl_coef"] = kl.adaptive_coef(
            method.kl_coef,
            metrics["kl/sequence"],
            target=method.kl_target,
            num_samples=num_samples,
            horizon=method.kl_horizon,
        )
    measured, target = metrics.get("kl/old_after"), method.old_kl_target
    if target is not None and measured is not None:
        coefs["old_kl_coef"] = kl.doubling_coef(method.old_kl_coef, measured, target=target)
    return method.model_copy(update=coefs)


# --- Rollouts and rewards


def sample_and_reward(
    draw: Callable[..., Rollouts],
    reward: Callable[[Rollouts], CompletionRewards],
    prompts: Sequence[Prompt],
    config: RlConfig,
    method: Method,
) -> Experience:
    """Groups of completions of the prompts, with their rewards.

    Episodes in which the environment failed are masked out. With `max_rounds` above 1 this is
    dynamic sampling: further prompts are sampled until `prompts_per_step` groups have a signal
    (`has_signal`), and the first such groups are learned from. Yu et al., "DAPO" (2025), eq. 11,
    https://arxiv.org/abs/2503.14476. Departures: after `max_rounds` rounds, each of
    `prompts_per_step` prompts, the step learns from the groups so far, even if they are fewer;
    prompts of rounds that it did not need are passed over until the next pass over all prompts, so
    that the prompts of a step do not depend on earlier results; and rewards may differ for any
    reason, format and length included, while the paper requires both right and wrong answers.
    """
    size, num_prompts = config.completions_per_prompt, config.prompts_per_step
    if method.max_rounds == 1:
        return sample_round(draw, reward, prompts, size, method)
    rounds: list[Experience] = []
    missing = num_prompts
    for start in range(0, min(len(prompts), method.max_rounds * num_prompts), num_prompts):
        groups = sample_round(draw, reward, prompts[start : start + num_prompts], size, method)
        signal = has_signal(groups, method)
        rank = signal.view(-1, size)[:, 0].cumsum(0)[torch.tensor(groups.rollouts.groups)]
        is_chosen = signal & (rank <= missing)
        rounds.append(replace(groups, used=is_chosen & groups.used))
        missing -= int(is_chosen.sum()) // size
        if missing == 0:
            break
    greedy_rewards = [each.greedy_rewards for each in rounds if each.greedy_rewards is not None]
    counts = [each.greedy_counts for each in rounds]
    return Experience(
        rollouts=rollouts.join_rollouts([each.rollouts for each in rounds]),
        rewards=rewarding.join_rewards([each.rewards for each in rounds]),
        used=torch.cat([each.used for each in rounds]),
        num_rounds=len(rounds),
        greedy_rewards=torch.cat(greedy_rewards) if greedy_rewards else None,
        greedy_counts={name: sum(each[name] for each in counts) for name in counts[0]},
    )


def sample_round(
    draw: Callable[..., Rollouts],
    reward: Callable[[Rollouts], CompletionRewards],
    prompts: Sequence[Prompt],
    size: int,
    method: Method,
) -> Experience:
    """Groups of `size` completions, one of each prompt, and the baseline of `greedy_baseline`."""
    batch = draw(prompts, group_size=size)
    sampled = Experience(rollouts=batch, rewards=reward(batch), used=~batch.failed())
    if method.advantage == "greedy_baseline":
        greedy, groups = draw(batch.prompts, group_size=None), torch.tensor(batch.groups)
        rewards = reward(greedy)
        sampled.greedy_rewards = rewards.rewards()[groups]
        sampled.greedy_counts = rollouts.count_work(greedy, rewards)
        sampled.greedy_counts["tokens/generated"] = int(greedy.mask().sum())
        # If the greedy episode failed, its group has no baseline.
        sampled.used = sampled.used & ~greedy.failed()[groups]
    return sampled


def has_signal(sampled: Experience, method: Method) -> Flags:
    """True in groups whose counted rewards are not all equal.

    With `greedy_baseline`: in groups with a counted reward other than the greedy completion's.
    """
    batch, rewards = sampled.rollouts, sampled.rewards.rewards()
    groups = torch.tensor(batch.groups)
    counted = truncation_masks(batch.truncated(), method)[0] & sampled.used
    if sampled.greedy_rewards is None:
        return ~group_advantages.has_equal_rewards(rewards, groups, counted=counted)
    differs = counted & (rewards != sampled.greedy_rewards)
    return group_advantages.group_counts(groups, counted=differs) > 0


def truncation_masks(truncated: Flags, method: Method) -> tuple[Flags, Flags]:
    """Masks of the completions that count in the baseline, and of those that count in the loss."""
    every = torch.ones_like(truncated)
    match method.truncation:
        case "penalise":
            return every, every
        case "mask":
            return every, ~truncated
        case _:
            return ~truncated, ~truncated


def subtract_length_penalties(
    rewards: CompletionRewards, batch: Rollouts, method: Method, limit: int
) -> CompletionRewards:
    """Rewards less the method's penalties on truncated completions and on those near the limit.

        r = reward - truncation_penalty [truncated] + overlong_penalty soft_overlong(length)

    The first penalty with `truncation: penalise`, the second with an `overlong_buffer`;
    `soft_overlong` is between -1 and 0. `limit`: largest number of tokens, and the length of a
    truncated completion.
    """
    totals = torch.tensor(rewards.totals, dtype=torch.float32)
    if method.truncation == "penalise":
        totals = totals - method.truncation_penalty * batch.truncated()
    if method.overlong_buffer is not None:
        # An episode may reach the limit of its transcript before it has sampled as many tokens.
        lengths = torch.where(batch.truncated(), limit, batch.mask().sum(1))
        length_terms = soft_overlong(lengths, max_length=limit, buffer=method.overlong_buffer)
        totals = totals + method.overlong_penalty * length_terms
    return replace(rewards, totals=totals.tolist())


# --- KL divergence from the reference


def measure_kl(
    batch: Rollouts, method: Method, policy_logprobs: Grid, ref_logprobs: Grid | None
) -> tuple[Grid, Metrics]:
    """KL penalty at each token, and estimates of KL(policy || reference) as metrics.

        penalty_t = kl_coef * estimator(policy_logprobs, ref_logprobs), if the KL is in the reward
                    0, otherwise

    The metrics are unbiased: k1 and k3 per token and k1 per completion, with the sampler's
    log-probs, over all groups, since leaving out groups of equal rewards would bias them. Failed
    episodes are left out. Without a reference there are no metrics.
    """
    counted = ~batch.failed()
    mask, logprobs = batch.mask() & counted[:, None], batch.sampler_logprobs()
    penalties = torch.zeros(mask.shape)
    if ref_logprobs is None:
        return penalties, {}
    if method.kl == "reward":
        penalty = method.kl_coef * KL_ESTIMATORS[method.kl_estimator](policy_logprobs, ref_logprobs)
        penalties = torch.where(mask, penalty, 0.0)
    k1 = kl.k1(logprobs, ref_logprobs)
    return penalties, {
        "kl/k1": masked_mean(k1, mask).item(),
        "kl/k3": masked_mean(kl.k3(logprobs, ref_logprobs), mask).item(),
        "kl/sequence": masked_sum(k1, mask).item() / int(counted.sum()),
    }


def logprob_grid_no_grad(
    model: Policy,
    batches: Sequence[Batch],
    mask: Mask,
    temperature: float,
    *,
    adapted: bool = False,
) -> Grid:
    """`logprobs_no_grad` of all completions of a rollout batch, by default without adapters."""
    grid = torch.zeros(mask.shape)
    of_batches = logprobs_no_grad(model, batches, temperature, adapted=adapted)
    for batch, rows in zip(batches, of_batches, strict=True):
        grid[batch.indices, : rows.shape[1]] = rows.cpu()
    return grid


def logprobs_no_grad(
    model: Policy, batches: Sequence[Batch], temperature: float, *, adapted: bool = True
) -> list[BatchGrid]:
    """Log-probs of each micro-batch's completion tokens, in eval mode and without a gradient.

    Without `adapted`, LoRA adapters are switched off: the policy is then its own reference.
    """
    with eval_no_grad(model):
        return [
            model(batch, temperature=temperature, entropy=False, adapted=adapted).logprobs
            for batch in batches
        ]


# --- Advantages


def token_rewards(rewards: CompletionRewards, penalties: Grid, mask: Mask) -> Grid:
    """Reward at each token, less its KL penalty.

    r_t = step reward, where a reasoning step ends at t
          + completion reward, where t is the last token
          - penalty_t
    """
    grid = -penalties if rewards.step_rewards is None else rewards.step_rewards - penalties
    last = (mask.sum(1, keepdim=True) - 1).clamp(min=0)
    return grid.scatter_add(1, last, torch.tensor(rewards.totals)[:, None])


def compute_reward_advantages(
    method: Method,
    rewards: CompletionRewards,
    penalties: Grid,
    batch: Rollouts,
    counted: Flags,
    greedy_rewards: Float[Tensor, " completion"] | None,
) -> Grid:
    """Advantages from rewards without a value model, each at all tokens of its completion.

    A completion that is not `counted` enters no baseline and has advantage 0. `step_zscore` adds
    process supervision to outcome supervision (Shao et al. 2024, section 4.1.3):

        A_t = step_weight * step_zscore_t + group_zscore(completion reward - sum of its penalties)

    The paper has only the first term. The second is 0 if completion rewards less penalties are
    equal throughout a group, as without a verifier and without the KL in the reward. Each term is
    normalised by itself, so the scale of the step rewards does not change their ratio.
    """
    assert method.advantage not in ("gae", "teacher"), "compute_gae, compute_teacher_advantages"
    mask, groups = batch.mask(), torch.tensor(batch.groups)
    scale = {"counted": counted, "ddof": method.ddof, "eps": method.eps}
    returns = rewards.rewards() - penalties.sum(1)
    match method.advantage:
        case "greedy_baseline":
            assert greedy_rewards is not None
            advantages = group_advantages.greedy_baseline(
                returns, counted=counted, greedy_rewards=greedy_rewards
            )
        case "batch_whitened":
            assert method.whiten_eps is not None
            tokens = mask & counted[:, None]
            rewards_to_go = token_advantages.returns_to_go(
                token_rewards(rewards, penalties, mask), tokens, gamma=method.gamma
            )
            return masked_whiten(rewards_to_go, tokens, eps=method.whiten_eps)
        case "step_zscore":
            assert rewards.step_rewards is not None, "rollout_rewards.check_reward"
            assert rewards.step_ends is not None
            steps = token_advantages.step_zscore(
                rewards.step_rewards, rewards.step_ends, groups, **scale
            )
            end_rewards = torch.tensor(rewards.totals) - penalties.sum(1)
            ends = group_advantages.group_zscore(end_rewards, groups, **scale)
            return method.step_weight * steps + ends[:, None] * mask
        case _:
            advantages = apply_choice("advantage", method, returns, groups, counted=counted)
    return advantages[:, None] * mask


def compute_teacher_advantages(
    method: Method,
    rewards: CompletionRewards,
    penalties: Grid,
    batch: Rollouts,
    counted: Flags,
    policy_logprobs: Grid,
    teacher_logprobs: Grid,
) -> Grid:
    """Advantages of on-policy distillation (`loops/teacher`).

        A_t = log teacher(x_t) - log policy(x_t) - penalty_t
              + reward_coef (reward - mean reward of its group)

    The policy's log-probs are those with which x_t was sampled, as for the KL in the reward; for a
    stale batch see `measure_logprobs`. A completion that is not `counted` has advantage 0.
    """
    mask = batch.mask() & counted[:, None]
    advantages = token_advantages.teacher_log_ratio(policy_logprobs, teacher_logprobs, mask)
    advantages = advantages - torch.where(mask, penalties, 0.0)
    if method.reward_coef == 0:
        return advantages
    groups = torch.tensor(batch.groups)
    centred = group_advantages.group_centred(rewards.rewards(), groups, counted=counted)
    return advantages + method.reward_coef * centred[:, None] * mask


@torch.no_grad()
def compute_gae(
    value: nn.Module,
    batches: Sequence[Batch],
    method: Method,
    rewards: CompletionRewards,
    penalties: Grid,
    mask: Mask,
) -> tuple[dict[str, Grid], Metrics]:
    """PPO's advantages, values and returns by GAE (Schulman et al. 2016, 2017), and metrics.

        r   = token_rewards(rewards, penalties)
        A   = GAE(r, V; gamma, lam), whitened over `mask` unless `whiten_eps` is None
        R   = V + GAE(r, V; gamma, value_lam)

    With `lam_alpha`, lam depends on the completion's length (`length_adaptive_lambda`). `mask`:
    tokens of the completions in `batches`. V_t is predicted before token t, in eval mode. All three
    are 0 outside `mask`. Metrics: the value model's passes and `explained_variance`.
    """
    values = torch.zeros(mask.shape)
    with eval_no_grad(value):
        for batch in batches:
            rows = value(batch, each_token=True).cpu()
            values[batch.indices, : rows.shape[1]] = rows
    lam: float | Tensor = method.lam
    if method.lam_alpha is not None:
        lam = token_advantages.length_adaptive_lambda(mask.sum(1), alpha=method.lam_alpha)
    grid = token_rewards(rewards, penalties, mask)
    advantages, _ = token_advantages.gae(grid, values, mask, gamma=method.gamma, lam=lam)
    _, returns = token_advantages.gae(grid, values, mask, gamma=method.gamma, lam=method.value_lam)
    if method.whiten_eps is not None:
        advantages = masked_whiten(advantages, mask, eps=method.whiten_eps)
    metrics: Metrics = {
        **work.count_batch_passes("value", "read", batches, logits=False),
        "value/explained_variance": explained_variance(returns, values, mask),
    }
    return {"advantages": advantages, "values": values, "returns": returns}, metrics


def explained_variance(returns: Grid, values: Grid, mask: Mask) -> float:
    """1 - Var(return - V) / Var(return): 1 for a perfect value model, 0 for a constant one.

    0 where the variance of the returns is at most 1e-8.
    """

    def variance(grid: Grid) -> Float[Tensor, ""]:
        return masked_mean((grid - masked_mean(grid, mask)) ** 2, mask)

    total = variance(returns)
    return (1 - variance(returns - values) / total).item() if total > 1e-8 else 0.0


# --- The objective


def check_first_ratio(logprobs: Grid, old_logprobs: Grid) -> None:
    """Assert that the importance ratio is 1 before the first update of a rollout batch.

    Exactly 1 on a CPU; on a GPU the log-ratio may reach `FIRST_RATIO_TOLERANCE`.
    """
    gap = (logprobs - old_logprobs).abs().max().item()
    assert gap <= FIRST_RATIO_TOLERANCE[logprobs.device.type], (
        f"log-probs moved by {gap} before any update: the forward pass is not a function of "
        f"weights and tokens alone (dropout, or a kernel that is not deterministic)"
    )


def policy_loss(
    new: TokenLogprobs,
    old_logprobs: Grid,
    grids: TokenGrids,
    mask: Mask,
    minibatch: Minibatch,
    settings: Settings,
) -> tuple[Float[Tensor, ""], Mask]:
    """A micro-batch's part of the loss of its optimizer step, and a mask of clipped tokens.

    loss = aggregate(correction * surrogate + kl_coef * KL - entropy_coef * entropy)
           + positive_nll_coef * mean of (- log p) over the tokens of right completions
    """
    method = settings.method
    inputs = new.logprobs, old_logprobs, grids.advantages, mask
    losses, is_clipped = apply_choice("surrogate", method, *inputs)
    # The gap between sampler and trainer is measured separately (`rollouts.check_sampler_gap`).
    inputs = old_logprobs, grids.sampler_logprobs, mask
    losses = losses * apply_choice("correction", method, *inputs)
    if method.kl == "loss":
        assert grids.ref_logprobs is not None
        penalty = kl_losses(new.logprobs, grids.sampler_logprobs, grids.ref_logprobs, mask, method)
        losses = losses + method.kl_coef * penalty
    if method.entropy_coef > 0:
        losses = losses - method.entropy_coef * new.entropies
    # Divide by counts of the whole mini-batch: any split into micro-batches has the same gradient.
    tokens = {"num_tokens": minibatch.num_tokens}
    sequences = {"num_sequences": minibatch.num_sequences}
    function, counts = {
        "sequence_mean": (aggregation.sequence_mean, sequences),
        "token_mean": (aggregation.token_mean, tokens),
        "fixed_length": (
            aggregation.fixed_length_mean, sequences | {"length": settings.config.max_new_tokens}
        ),
        "sequence_sum": (aggregation.sequence_sum, sequences),
    }[method.aggregation]  # fmt: skip
    loss = function(losses, mask, **counts)
    if method.positive_nll_coef > 0 and minibatch.num_right_tokens:
        mean_nll = masked_sum(-new.logprobs, mask & grids.right) / minibatch.num_right_tokens
        loss = loss + method.positive_nll_coef * mean_nll
    return loss, is_clipped


def kl_losses(
    logprobs: Grid, sampler_logprobs: Grid, ref_logprobs: Grid, mask: Mask, method: Method
) -> Grid:
    """Estimate of KL(policy || reference) at each token, with gradient, before `kl_coef`.

    With `kl_corrected` it is multiplied by the importance ratio to the policy that sampled the
    tokens. With a stale batch or another engine, that is not the old policy of the surrogate.
    """

    # Subtract before summing: two sums of log-probs nearly cancel, but their rounding errors do
    # not.
    def log_ratio(other_logprobs: Grid) -> Float[Tensor, "completion _"]:
        ratio = torch.where(mask, logprobs, 0.0) - torch.where(mask, other_logprobs.detach(), 0.0)
        return ratio.sum(1, keepdim=True) if method.kl_level == "sequence" else ratio

    to_ref, to_sampler = log_ratio(ref_logprobs), log_ratio(sampler_logprobs)
    penalty = KL_ESTIMATORS[method.kl_estimator](to_ref, torch.zeros_like(to_ref))
    if method.kl_corrected:
        penalty = kl.importance_corrected(penalty, to_sampler, torch.zeros_like(to_sampler))
    return penalty.expand(mask.shape)
