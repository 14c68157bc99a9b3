"""Configuration of reinforcement learning: method, sizes, and checks that they fit together.

An entry of presets.yaml under `train: grpo` or `train: ppo` is a `Method`: the choices in which
GRPO, PPO and their relatives differ. Its defaults are GRPO of Shao et al., "DeepSeekMath" (2024),
https://arxiv.org/abs/2402.03300, with outcome supervision, so that an entry shows only how it
differs from them. The sections `grpo` and `ppo` of params.yaml are an `RlConfig`: sizes and rates,
the same for every method. `stages.loops.rl` trains with both.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from stages.algorithms.kl import adaptive_coef
from stages.config import Params, check_choice, check_hyperparameters
from stages.loops.rollouts import RolloutConfig
from stages.optim import OptimConfig
from stages.own_modules import get_own_word

Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]

GROUP_ONLY = ("max_rounds", "overlong_buffer", "overlong_penalty")
"""Fields of every advantage without a value model, except `teacher` and `mean_normalised`, which
takes no negative rewards."""
OWN = "own/<file>"
"""Value of a choice: a user's function in stages/algorithms/own/, with its numbers in the file."""
HYPERPARAMETERS: dict[str, dict[Any, tuple[str, ...]]] = {
    "advantage": {
        "group_zscore": ("ddof", "eps", *GROUP_ONLY),
        "group_centred": (*GROUP_ONLY,),
        "mean_normalised": ("eps", "max_rounds"),
        "batch_std": ("ddof", "eps", *GROUP_ONLY),
        "leave_one_out": (*GROUP_ONLY,),
        "greedy_baseline": (*GROUP_ONLY,),
        "batch_whitened": ("gamma", "whiten_eps", *GROUP_ONLY),
        "step_zscore": ("ddof", "eps", "step_weight", *GROUP_ONLY),
        "teacher": ("teacher_prompt", "reward_coef"),
        "gae": (
            "gamma", "lam", "lam_alpha", "whiten_eps", "value_lam", "value_init", "value_clip",
            "value_coef", "value_warmup_steps",
        ),
        OWN: (*GROUP_ONLY,),
    },
    "surrogate": {
        "clip": ("clip_low", "clip_high"),
        "dual_clip": ("clip_low", "clip_high", "dual_clip_cap"),
        "sequence_ratio": ("clip_low", "clip_high", "normalise_ratio"),
        "cispo": ("max_ratio",),
        "reinforce": (),
        "kl_penalty": ("old_kl_coef", "old_kl_target"),
        OWN: (),
    },
    "kl": {
        "none": (),
        "reward": ("kl_coef", "kl_estimator", "kl_target", "kl_horizon"),
        "loss": ("kl_coef", "kl_estimator", "kl_target", "kl_horizon", "kl_level", "kl_corrected"),
    },
    "correction": {
        "auto": ("correction_cap",),
        "none": (),
        "token_truncated": ("correction_cap",),
        "token_masked": ("correction_low", "correction_high"),
        "sequence_truncated": ("correction_cap",),
        "sequence_masked": ("correction_low", "correction_high"),
    },
    "truncation": {"penalise": ("truncation_penalty",), "mask": (), "exclude": ()},
}  # fmt: skip
"""Choice -> value -> fields that are hyperparameters of this value. Setting a field that the chosen
value does not use is an error."""


NO_COMPARISON = ("greedy_baseline", "batch_whitened", "teacher", "gae")
"""Advantages that do not compare a prompt's completions; with `reward_coef`, `teacher` does."""


def get_key(choice: str, value: str) -> str:
    """Key of `HYPERPARAMETERS[choice]` for a value; a ValueError if there is none."""
    keys = HYPERPARAMETERS[choice]
    return OWN if OWN in keys and get_own_word(value) else check_choice(value, keys)


class Method(Params):
    """Policy gradient method: choices and their numbers, in one flat table.

    `{advantage: leave_one_out, surrogate: reinforce, aggregation: sequence_sum, kl: none}` is a
    complete method (RLOO). A number that no chosen value uses is an error (`HYPERPARAMETERS`).
    """

    # Advantages
    advantage: str = "group_zscore"
    """Baseline and scale of the rewards. `gae`, generalised advantage estimation, has a value model
    and makes the method PPO; `teacher` is on-policy distillation (`loops/teacher`); the others are
    functions of the rewards of a rollout batch: `algorithms/group_advantages`,
    `token_advantages`, or one of yours."""
    ddof: Literal[0, 1] = 1
    """Divisor of the variance of a group of n: n - ddof."""
    eps: Positive = 1e-4
    """Added to a group's standard deviation, or its mean."""
    gamma: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Discount per token."""
    whiten_eps: Positive | None = 1e-8
    """Added to the variance when advantages are whitened over the rollout batch; null, which only
    `gae` allows: no whitening."""
    step_weight: Positive = 1.0
    """Weight of the advantages of reasoning steps, beside those of outcomes."""
    teacher_prompt: Literal["same", "solution"] = "same"
    """Prompt of the teacher. `same`: the student's; the row names a policy in `on`. `solution`: the
    problem, a right demonstration, and the problem again; the row names `demonstrations`, and the
    teacher is the policy `from`, frozen."""
    reward_coef: NotNegative = 0.0
    """Weight of the answer checker's verdict, centred within its group, that is added to the
    teacher's advantage of each token; 0: only the teacher's."""
    lam: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Lambda of the policy's advantages. 1: return minus value; 0: one-step residual."""
    lam_alpha: Positive | None = None
    """alpha of lambda = 1 - 1 / (alpha * length), in place of `lam`: Yue et al., "VAPO" (2025)."""

    # Value model
    value_lam: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Lambda of the returns that the value model learns; VAPO: 1."""
    value_init: Literal["reward_model", "policy"] = "reward_model"
    """Weights that the value model starts from; `policy`: those of the policy, a zero head."""
    value_clip: Positive | None = 0.2
    """Clip range of the value loss around the value before the update; null: no clipping."""
    value_coef: Positive = 1.0
    """Weight of the value loss. The value model has a separate AdamW, whose steps do not depend on
    the loss's scale: the weight matters only if the gradient norm is clipped."""
    value_warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Number of first rollout batches from which only the value model learns; the policy's learning
    rate warms up after them. A run that ends within them is an error: before it starts, or, with
    `token_budget`, at its end."""

    # Policy loss
    surrogate: str = "clip"
    """Loss per token as a function of importance ratio and advantage: of
    `algorithms/losses/surrogates`, or yours."""
    clip_low: Share = 0.2
    """Clip range of the importance ratio: [1 - clip_low, 1 + clip_high]."""
    clip_high: NotNegative = 0.2
    """Distance of the upper limit from 1; DAPO sets it above `clip_low` ("clip higher")."""
    dual_clip_cap: Annotated[float, Field(gt=1)] = 3.0
    """Limit of the ratio if the advantage is negative."""
    normalise_ratio: bool = False
    """Whether a completion's ratio is the geometric mean of its tokens' ratios (GSPO)."""
    max_ratio: Positive = 5.0
    """CISPO's cap of the ratio."""
    old_kl_coef: NotNegative = 1.0
    """Weight of KL(old policy || policy), per token."""
    old_kl_target: Positive | None = None
    """Target of that KL, in nats per token: `old_kl_coef` is doubled or halved if the KL is off by
    a factor of 1.5 (Schulman et al. 2017, section 4); null: constant weight."""
    aggregation: Literal["sequence_mean", "token_mean", "fixed_length", "sequence_sum"] = (
        "sequence_mean"
    )
    """Aggregation of token losses to the loss of an optimizer step: `algorithms/aggregation`."""
    correction: str = "auto"
    """Importance weights that correct for the sampler's other probabilities:
    `algorithms/losses/importance_ratios`. `auto`: `token_truncated` if vLLM samples, whose kernels
    are not the trainer's, or with `staleness`; else `none`."""
    correction_cap: Annotated[float, Field(ge=1)] = 2.0
    """Largest weight (Yao et al. 2025, truncated importance sampling)."""
    correction_low: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Lower limit: a weight outside [correction_low, correction_high] becomes 0."""
    correction_high: Annotated[float, Field(ge=1)] = 2.0
    entropy_coef: NotNegative = 0.0
    """Weight of the policy's entropy, which is subtracted from the loss."""
    positive_nll_coef: NotNegative = 0.0
    """Weight of the mean of -log p over the tokens of right completions (VAPO)."""

    # KL divergence from the reference
    kl: str = "loss"
    """Place of the KL penalty. `reward`: subtracted from each token's reward before advantages are
    computed, without a gradient. `loss`: added to each token's loss, differentiated. `none`: the KL
    is only measured."""
    kl_coef: NotNegative = 0.04
    """Weight of the KL divergence (beta), per token; with `kl_target`, its initial value."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of the KL divergence, with the gradients of `algorithms/kl`. In the reward k1 has,
    through the policy gradient, that of KL(policy || reference). In the loss k1's expected gradient
    is zero, k2's is that of the reverse KL, k3's that of the forward KL."""
    kl_level: Literal["token", "sequence"] = "token"
    """Level of the estimate. `sequence`: that of a completion's summed log-probs, at each token."""
    kl_corrected: bool = False
    """Whether the estimate is multiplied by the importance ratio, with its gradient."""
    kl_target: Positive | None = None
    """KL that `kl_coef` adapts to, in nats per completion (Ziegler et al. 2019); null: constant."""
    kl_horizon: Annotated[int, Field(gt=0)] = 10_000
    """Number of completions over which `kl_coef` adapts."""
    kl_budget: Positive | None = None
    """KL per completion, in nats, above which training ends; null: no limit."""

    # Sampling
    staleness: Annotated[int, Field(ge=0)] = 0
    """Number of steps k by which the weights that sample a rollout batch lag behind those that
    learn from it: batch n, from 0, is drawn with the weights after max(0, n - k) steps (the first
    k + 1 batches with the initial ones), and learned from in step n. 0: on policy. The sampling
    weights are the behaviour policy, for which `correction` corrects; old log-probs are of the
    weights at the start of step n."""
    max_rounds: Annotated[int, Field(gt=0)] = 1
    """Largest number of rounds of sampling. Above 1, dynamic sampling (DAPO): it ends when enough
    groups have unequal rewards; with `greedy_baseline`, not all equal to the greedy one's."""
    truncation: str = "penalise"
    """Treatment of truncated completions: `penalise`, they count like any other; `mask`, they count
    in the baseline but not in the loss (DAPO's overlong filtering); `exclude`, in neither."""
    truncation_penalty: NotNegative = 0.0
    """Subtracted from the reward of truncated completions."""
    overlong_buffer: Annotated[int, Field(gt=0)] | None = None
    """Tokens before the limit over which DAPO's soft overlong punishment grows; null: none."""
    overlong_penalty: Positive = 1.0
    """Penalty at the length limit, which grows from 0 over `overlong_buffer` tokens."""

    # Optimizer steps
    num_epochs: Annotated[int, Field(gt=0)] = 1
    """Passes over each rollout batch (mu); old log-probs are computed once."""
    num_minibatches: Annotated[int, Field(gt=0)] = 1
    """Optimizer steps per pass; the first one of a rollout batch is on policy."""
    token_budget: Annotated[int, Field(gt=0)] | None = None
    """Number of tokens, generated and trained on, that ends training, in place of `num_steps`."""

    @field_validator(*HYPERPARAMETERS)
    @classmethod
    def _is_a_choice(cls, value: str, info: Any) -> str:
        get_key(info.field_name, value)
        return value

    @model_validator(mode="after")
    def _fields_go_together(self) -> "Method":
        for choice, table in HYPERPARAMETERS.items():
            check_hyperparameters(self, choice, table, get_key(choice, getattr(self, choice)))
        if self.lam_alpha is not None and "lam" in self.model_fields_set:
            raise ValueError("expected lam or lam_alpha, found both: remove one")
        if self.overlong_buffer is None and "overlong_penalty" in self.model_fields_set:
            raise ValueError("overlong_penalty is of no use without overlong_buffer: set it too")
        if self.kl_target is None and "kl_horizon" in self.model_fields_set:
            raise ValueError("kl_horizon is of no use without kl_target: set it too")
        if self.advantage == "mean_normalised" and (self.kl == "reward" or self.truncation_penalty):
            raise ValueError(
                "advantage mean_normalised divides by the mean reward, so no reward may be "
                "negative: take kl loss or none, and remove truncation_penalty"
            )
        if self.whiten_eps is None and self.advantage == "batch_whitened":
            raise ValueError(
                "advantage batch_whitened needs whiten_eps: expected a number, found null"
            )
        if self.advantage == "teacher" and not self.reward_coef and self.truncation_penalty:
            raise ValueError(
                "truncation_penalty lowers a reward, and advantage teacher learns from rewards "
                "only with reward_coef above 0: set reward_coef, or remove truncation_penalty"
            )
        for coef, target in (("kl_coef", "kl_target"), ("old_kl_coef", "old_kl_target")):
            if getattr(self, target) is not None and getattr(self, coef) == 0:
                raise ValueError(f"{target} scales {coef}: expected {coef} above 0, found 0")
        return self

    @model_validator(mode="after")
    def _stale_batches_are_all_learned_from(self) -> "Method":
        for name in ("token_budget", "kl_budget"):
            if self.staleness and getattr(self, name) is not None:
                raise ValueError(
                    f"{name} ends training at a step that is unknown in advance, so with staleness "
                    f"{self.staleness} as many rollout batches would be drawn in vain: set "
                    f"staleness to 0, or {name} to null and num_steps to the steps to take"
                )
        return self

    def for_engine(self, engine: str) -> "Method":
        """Method with `correction: auto` replaced by the choice for the sampling engine."""
        if self.correction != "auto":
            return self
        correction = "token_truncated" if engine == "vllm" or self.staleness else "none"
        return self.model_copy(update={"correction": correction})

    def lag(self, index: int) -> int:
        """Age, in steps, of the weights that sample rollout batch `index`."""
        return min(index, self.staleness)

    def compares_completions(self) -> bool:
        """Whether the completions of a prompt are compared, so that a group has at least two."""
        return self.advantage not in NO_COMPARISON or self.reward_coef > 0

    def trains_on_zero_advantages(self) -> bool:
        """Whether completions with advantage 0 are passed through the model.

        True if another term of the loss has a gradient there, as the KL in `kl_penalty`, or may
        have one, as a surrogate of yours, or if a teacher gives each token an advantage.
        """
        has_other_term = self.kl == "loss" or self.entropy_coef > 0 or self.positive_nll_coef > 0
        is_penalised = self.surrogate == "kl_penalty" or get_own_word(self.surrogate) is not None
        return has_other_term or is_penalised or self.has_teacher

    @property
    def has_teacher(self) -> bool:
        """Whether advantages come from a teacher's log-probs: on-policy distillation."""
        return self.advantage == "teacher"

    @property
    def needs_policy_logprobs(self) -> bool:
        """Whether rewards or advantages depend on the policy's log-probs."""
        return self.kl == "reward" or self.has_teacher

    @property
    def measures_kl(self) -> bool:
        """Whether the KL from a reference is measured; with a teacher, only if training uses it."""
        return not self.has_teacher or self.needs_reference()

    @property
    def teacher_reads_solution(self) -> bool:
        """Whether the teacher is the initial policy with a solution in its prompt."""
        return self.has_teacher and self.teacher_prompt == "solution"

    def needs_reference(self) -> bool:
        """Whether training uses a reference: for a penalty or limit of the KL, or for PPO."""
        return self.advantage == "gae" or self.kl != "none" or self.kl_budget is not None


def _without_value_model(method: Method) -> Method:
    if method.advantage == "gae":
        raise ValueError("advantage gae has a value model: use this preset with train: ppo")
    return method


def _with_value_model(method: Method) -> Method:
    if method.advantage != "gae":
        raise ValueError(
            f"PPO has a value model, and advantage {method.advantage} has none: use this preset "
            f"with train: grpo, or set advantage: gae"
        )
    return method


GroupMethod = Annotated[Method, AfterValidator(_without_value_model)]
"""Preset of `train: grpo`."""
PpoMethod = Annotated[Method, AfterValidator(_with_value_model)]
"""Preset of `train: ppo`."""


class RlConfig(RolloutConfig):
    """Sizes and rates, the same for every preset: sections `grpo` and `ppo` of params.yaml."""

    num_steps: int = Field(gt=0)
    """Number of rollout batches."""
    prompts_per_step: int = Field(gt=0)
    """Prompts per rollout batch that is learned from."""
    num_checkpoints: int = Field(ge=0)
    """Number of intermediate policies to save, evenly spaced, each as large as the policy."""
    optim: OptimConfig
    completions_per_prompt: int = Field(gt=0)
    """Size of a group."""


class GroupRlConfig(RlConfig):
    """Section `grpo`."""

    completions_per_prompt: int = Field(gt=0, alias="group_size")


class PpoConfig(RlConfig):
    """Section `ppo`."""

    completions_per_prompt: int = Field(gt=0, alias="samples_per_prompt")
    """Completions per prompt; 1 in the paper. Several share the computation of the prompt."""
    value_optim: OptimConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Configuration of a training run: sizes, method, and the seed of all its random draws."""

    config: RlConfig
    method: Method
    seed: int

    def __post_init__(self) -> None:
        check_sizes(self.config, self.method)

    def max_prompts(self) -> int:
        """Largest number of prompts that a step needs."""
        return self.config.prompts_per_step * self.method.max_rounds


def check_sizes(config: RlConfig, method: Method) -> None:
    """Raise a ValueError if the method cannot work with the sizes."""
    prompts, size = config.prompts_per_step, config.completions_per_prompt
    if method.num_minibatches > prompts:
        raise ValueError(
            f"num_minibatches {method.num_minibatches} is more than prompts_per_step {prompts}: "
            "raise prompts_per_step, or add a preset of your own with fewer num_minibatches"
        )
    if method.token_budget is None and method.value_warmup_steps >= config.num_steps:
        raise ValueError(
            f"value_warmup_steps {method.value_warmup_steps}, in which only the value model "
            f"learns, leave the policy none of num_steps {config.num_steps}: raise num_steps"
        )
    if (buffer := method.overlong_buffer) is not None and buffer > config.max_new_tokens:
        raise ValueError(
            f"overlong_buffer {buffer} is more than max_new_tokens {config.max_new_tokens}: lower "
            f"it, or raise max_new_tokens"
        )
    if (target := method.kl_target) is not None:  # no step may change the coefficient's sign
        adaptive_coef(
            method.kl_coef, target, target=target, horizon=method.kl_horizon,
            num_samples=prompts * size * method.max_rounds,
        )  # fmt: skip
    if size < 2 and method.compares_completions():
        by = " with reward_coef" if method.reward_coef else ""
        raise ValueError(
            f"group_size is {size}; advantage {method.advantage}{by} compares completions: at "
            f"least 2"
        )
    if size < 2 and method.max_rounds > 1 and method.advantage != "greedy_baseline":
        raise ValueError(
            f"group_size is {size}; max_rounds {method.max_rounds} looks for prompts whose "
            f"completions differ in reward, and learns from no other: at least 2, or max_rounds 1"
        )
