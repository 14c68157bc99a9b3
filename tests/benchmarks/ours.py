"""Our loops, with the settings that `setting` and `trl_trainers` give the other side."""

from collections.abc import Iterator
from itertools import count

import torch
from transformers import PreTrainedModel

from stages.algorithms import flops
from stages.algorithms.flops import Passes
from stages.engines.transformers import TransformersSampler, make_sampler
from stages.loops import preference, reward, rl, sft
from stages.loops.method import GroupRlConfig, Settings
from stages.loops.rollouts import RlModels, Rollouts, Task
from stages.loops.work import PREFIX, Step
from stages.models import model_tokenizer, policy, size
from stages.models.device import ComputeConfig
from stages.models.policy import Policy
from stages.models.scalar_head import ScalarHead
from stages.records.preferences import Preference
from stages.records.problems import Demonstration, Prompt
from stages.rewards.completion_rewards import CompletionRewards
from tests import presets
from tests.benchmarks import setting
from tests.benchmarks.setting import PAD, PROMPTS, ROWS, SAMPLES

COMPUTE = ComputeConfig(
    dtype="float32", gradient_checkpointing=False, max_tokens=4096, row_tokens=512,
    pack_tokens=128, max_batch=1024,
)  # fmt: skip
"""The default of params.yaml."""
OPTIM = {
    "learning_rate": setting.RATE, "warmup_share": 0.0, "schedule": "constant",
    "weight_decay": 0.0, "max_grad_norm": 1.0,
}  # fmt: skip
CPU = torch.device("cpu")
Steps = Iterator[dict[str, int | float]]
"""The metrics of each step."""


def steps(method: str, number: int, **changes: object) -> tuple[dict[str, PreTrainedModel], Steps]:
    """The models of a method by their role, and `number` of its steps.

    `changes` are to the preset of GRPO.
    """
    built = {"policy": setting.build()}
    if method == "reward":
        built = {"reward": setting.build_scalar(0)}
    if method == "grpo_kl":
        built["reference"] = setting.build()
    models = {role: policy.prepare_model(model, COMPUTE, CPU) for role, model in built.items()}
    schedule = [range(ROWS)] * number
    match method:
        case "sft":
            config = sft.SftConfig(num_epochs=1, batch_size=ROWS, optim=OPTIM)
            taken = sft.train(_policy(models), _demonstrations(), schedule, config)
        case "dpo":
            config = preference.PreferenceConfig(
                num_epochs=1, batch_size=ROWS, optim=OPTIM, num_checkpoints=0
            )
            reference, loss = torch.full((ROWS, 2), -200.0), presets.loss("dpo")
            taken = preference.train(_policy(models), _pairs(), reference, schedule, loss, config)
        case "reward":
            config = reward.RewardConfig(
                num_epochs=1, batch_size=ROWS, optim=OPTIM, centring=0.0, margin=0.0
            )
            model = ScalarHead(models["reward"], COMPUTE, PAD)
            taken = reward.train(model, _pairs(), schedule, config)
        case "sampling":
            return models, _sampling(models["policy"])
        case _:
            taken = _online(models, number, **changes)
    return models, (step.metrics for step in taken)


def operations(models: dict[str, PreTrainedModel], metrics: dict[str, int | float]) -> int:
    """Floating-point operations of a step (see `flops`), of every pass that the loop counted."""
    total = 0
    for role, model in models.items():
        sizes = size.count_matrices(model)

        def passes(kind: str, role: str = role) -> Passes:
            path = f"{PREFIX}{role}/{kind}"
            named = {name: metrics.get(f"{path}/{name}", 0) for name in ("positions", "outputs")}
            return Passes(**named)

        total += flops.count_training_flops(sizes, passes("trained"))
        for kind in ("sampled", "read"):
            total += flops.count_forward_flops(sizes, passes(kind))
    return total


def _policy(models: dict[str, PreTrainedModel], role: str = "policy") -> Policy:
    return Policy(models[role], COMPUTE, PAD)


def _demonstrations() -> list[Demonstration]:
    rows = zip(setting.prompts(ROWS), setting.completions(ROWS), strict=True)
    return [
        Demonstration(id=str(i), task="solve", prompt="", prompt_ids=ids, completion="",
                      completion_ids=completion)
        for i, (ids, completion) in enumerate(rows)
    ]  # fmt: skip


def _pairs() -> list[Preference]:
    columns = (setting.prompts(ROWS), setting.completions(ROWS), setting.completions(ROWS, seed=3))
    return [
        Preference(
            id=str(i), prompt="", prompt_ids=ids, chosen="", chosen_ids=chosen, rejected="",
            rejected_ids=rejected, probability=1.0, source="verifier",
        )
        for i, (ids, chosen, rejected) in enumerate(zip(*columns, strict=True))
    ]  # fmt: skip


def _sampler(model: PreTrainedModel) -> TransformersSampler:
    return make_sampler(model, setting.tokenizer(), max_batch=COMPUTE.max_batch)


def _sampling(model: PreTrainedModel) -> Steps:
    sampler, prompts = _sampler(model), setting.prompts(PROMPTS)
    for step in count():
        seeds = [step * PROMPTS + i for i in range(PROMPTS)]
        groups = sampler.sample(
            prompts, seeds, num_samples=SAMPLES, temperature=1.0, max_new_tokens=setting.LENGTH
        )
        new = sum(len(item.token_ids) for group in groups for item in group)
        yield {
            f"{PREFIX}policy/sampled/positions": new + sum(map(len, prompts)),
            f"{PREFIX}policy/sampled/outputs": new,
        }


def _online(models: dict[str, PreTrainedModel], number: int, **changes: object) -> Iterator[Step]:
    """GRPO."""
    reference = _policy(models, "reference") if "reference" in models else None
    rl_models = RlModels(
        policy=_policy(models), reference=reference, sampler=_sampler(models["policy"]),
        decode=model_tokenizer.make_decode(setting.tokenizer()),
    )  # fmt: skip
    config = GroupRlConfig(
        num_steps=number, prompts_per_step=PROMPTS, temperature=1.0, group_size=SAMPLES,
        max_new_tokens=setting.LENGTH, num_checkpoints=0, optim=OPTIM,
    )  # fmt: skip
    kl = {} if reference is not None else {"kl": "none"}
    method = presets.method("grpo_deepseekmath", aggregation="token_mean", **kl, **changes)

    def judge(batch: Rollouts) -> CompletionRewards:
        return CompletionRewards(totals=setting.reward([s.token_ids for s in batch.samples]))

    rows = [
        Prompt(id=str(i), task="solve", question="", prompt="", prompt_ids=ids, answer="")
        for i, ids in enumerate(setting.prompts(PROMPTS))
    ]
    task = Task(prompts=rows, reward=judge, check_answers=None)
    settings = Settings(config=config, method=method, seed=0)
    return rl.train(rl_models, task, [range(PROMPTS)] * number, settings)
