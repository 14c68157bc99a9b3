"""Our loops, with the settings that `setting` and `trl_trainers` give the other side."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import torch
from transformers import PreTrainedModel

from stages.algorithms import flops
from stages.algorithms.ensemble import mean
from stages.algorithms.flops import Passes
from stages.engines.transformers import TransformersSampler, make_sampler
from stages.loops import preference, reward, rl, sft
from stages.loops.method import GroupRlConfig, PpoConfig, Settings
from stages.loops.rollout_rewards import score_completions
from stages.loops.rollouts import RlModels, Task
from stages.loops.work import PREFIX
from stages.models import model_tokenizer, policy, size
from stages.models.device import ComputeConfig
from stages.models.policy import Policy
from stages.models.scalar_head import Ensemble, ScalarHead
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
    result = {"policy": policy.prepare_model(setting.build(), COMPUTE, CPU)}
    match method:
        case "sft":
            return result, _sft(result["policy"], number)
        case "dpo":
            return result, _dpo(result["policy"], number)
        case "reward":
            result = {"reward": policy.prepare_model(setting.build_scalar(0), COMPUTE, CPU)}
            return result, _reward(result["reward"], number)
        case "sampling":
            return result, _sampling(result["policy"])
        case "ppo":
            result["reference"] = policy.prepare_model(setting.build(), COMPUTE, CPU)
            for role, seed in (("scorer", 2), ("value", 3)):
                result[role] = policy.prepare_model(setting.build_scalar(seed), COMPUTE, CPU)
            return result, _ppo(result, number)
        case _:
            if method == "grpo_kl":
                result["reference"] = policy.prepare_model(setting.build(), COMPUTE, CPU)
            return result, _grpo(result["policy"], result.get("reference"), number, **changes)


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


def _sft(model: PreTrainedModel, number: int) -> Steps:
    rows = [
        Demonstration(
            id=str(i),
            task="solve",
            prompt="",
            prompt_ids=ids,
            completion="",
            completion_ids=completion,
        )
        for i, (ids, completion) in enumerate(
            zip(setting.prompts(ROWS), setting.completions(ROWS), strict=True)
        )
    ]
    config = sft.SftConfig(num_epochs=1, batch_size=ROWS, optim=OPTIM)
    return _metrics(sft.train(Policy(model, COMPUTE, PAD), rows, [range(ROWS)] * number, config))


def _pairs() -> list[Preference]:
    columns = (setting.prompts(ROWS), setting.completions(ROWS), setting.completions(ROWS, seed=3))
    return [
        Preference(
            id=str(i), prompt="", prompt_ids=ids, chosen="", chosen_ids=chosen, rejected="",
            rejected_ids=rejected, probability=1.0, source="verifier",
        )
        for i, (ids, chosen, rejected) in enumerate(zip(*columns, strict=True))
    ]  # fmt: skip


def _dpo(model: PreTrainedModel, number: int) -> Steps:
    config = preference.PreferenceConfig(
        num_epochs=1, batch_size=ROWS, optim=OPTIM, num_checkpoints=0
    )
    reference, loss = torch.full((ROWS, 2), -200.0), presets.loss("dpo")
    schedule = [range(ROWS)] * number
    return _metrics(
        preference.train(Policy(model, COMPUTE, PAD), _pairs(), reference, schedule, loss, config)
    )


def _reward(model: PreTrainedModel, number: int) -> Steps:
    config = reward.RewardConfig(
        num_epochs=1, batch_size=ROWS, optim=OPTIM, centring=0.0, margin=0.0
    )
    schedule = [range(ROWS)] * number
    return _metrics(reward.train(ScalarHead(model, COMPUTE, PAD), _pairs(), schedule, config))


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


def _models(model: PreTrainedModel, reference: PreTrainedModel | None) -> RlModels:
    return RlModels(
        policy=Policy(model, COMPUTE, PAD),
        reference=Policy(reference, COMPUTE, PAD) if reference else None,
        sampler=_sampler(model), decode=model_tokenizer.make_decode(setting.tokenizer()),
    )  # fmt: skip


def _task(judge: Callable[..., CompletionRewards]) -> Task:
    rows = [
        Prompt(id=str(i), task="solve", question="", prompt="", prompt_ids=ids, answer="")
        for i, ids in enumerate(setting.prompts(PROMPTS))
    ]
    return Task(prompts=rows, reward=judge, check_answers=None)


def _sizes(number: int) -> dict[str, object]:
    return {
        "num_steps": number, "prompts_per_step": PROMPTS, "temperature": 1.0,
        "max_new_tokens": setting.LENGTH, "num_checkpoints": 0, "optim": OPTIM,
    }  # fmt: skip


def _grpo(
    model: PreTrainedModel, reference: PreTrainedModel | None, number: int, **changes: object
) -> Steps:
    config = GroupRlConfig(**_sizes(number), group_size=SAMPLES)
    kl = {} if reference else {"kl": "none"}
    method = presets.method("grpo_deepseekmath", aggregation="token_mean", **kl, **changes)
    task = _task(
        lambda batch: CompletionRewards(totals=setting.reward([s.token_ids for s in batch.samples]))
    )
    settings = Settings(config=config, method=method, seed=0)
    models = _models(model, reference)
    return _metrics(rl.train(models, task, [range(PROMPTS)] * number, settings))


def _ppo(models: dict[str, PreTrainedModel], number: int) -> Steps:
    config = PpoConfig(**_sizes(number), samples_per_prompt=SAMPLES, value_optim=OPTIM)
    method = presets.method("ppo_instructgpt", num_minibatches=1)
    scorer, value = (ScalarHead(models[role], COMPUTE, PAD) for role in ("scorer", "value"))
    ensemble = Ensemble(members=[scorer], aggregate=mean)
    task = _task(lambda batch: score_completions(ensemble, batch))
    rl_models = replace(_models(models["policy"], models["reference"]), value=value)
    settings = Settings(config=config, method=method, seed=0)
    return _metrics(rl.train(rl_models, task, [range(PROMPTS)] * number, settings))


def _metrics(steps: Iterator) -> Steps:
    return (step.metrics for step in steps)
