"""Our loops, with the settings that `setting` and `theirs` give the other side."""

from collections.abc import Iterator

import torch
from transformers import PreTrainedModel

from stages.algorithms import flops
from stages.algorithms.flops import Passes
from stages.engines.transformers import make_sampler
from stages.loops import preference, rl, sft
from stages.loops.method import GroupRlConfig, Settings
from stages.loops.rollouts import RlModels, Rollouts, Task
from stages.loops.work import PREFIX, Step
from stages.models import model_tokenizer, policy, size
from stages.models.device import ComputeConfig
from stages.models.policy import Policy
from stages.optim import OptimConfig
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
OPTIM = OptimConfig(
    learning_rate=setting.RATE, warmup_share=0.0, schedule="constant", weight_decay=0.0,
    max_grad_norm=1.0,
)  # fmt: skip
Steps = Iterator[dict[str, int | float]]
"""The metrics of each step."""


def steps(method: str, number: int) -> tuple[PreTrainedModel, Steps]:
    """The model that a method trains or samples, and `number` of its steps."""
    model = policy.prepare_model(setting.build(), COMPUTE, torch.device("cpu"))
    learner, schedule = Policy(model, COMPUTE, PAD), [range(ROWS)] * number
    sizes = {"num_epochs": 1, "batch_size": ROWS, "optim": OPTIM}
    match method:
        case "sft":
            columns = setting.prompts(ROWS), setting.completions(ROWS, 2)
            rows = [
                Demonstration(id="", task="solve", prompt="", prompt_ids=prompt, completion="",
                              completion_ids=ids)
                for prompt, ids in zip(*columns, strict=True)
            ]  # fmt: skip
            taken = sft.train(learner, rows, schedule, sft.SftConfig(**sizes))
        case "dpo":
            sides = setting.completions(ROWS, 2), setting.completions(ROWS, 3)
            pairs = [
                Preference(id="", prompt="", prompt_ids=prompt, chosen="", chosen_ids=chosen,
                           rejected="", rejected_ids=rejected, probability=1.0, source="verifier")
                for prompt, chosen, rejected in zip(setting.prompts(ROWS), *sides, strict=True)
            ]  # fmt: skip
            reference, loss = torch.full((ROWS, 2), -200.0), presets.loss("dpo")
            config = preference.PreferenceConfig(**sizes, num_checkpoints=0)
            taken = preference.train(learner, pairs, reference, schedule, loss, config)
        case _:
            taken = _online(learner, number)
    return model, (step.metrics for step in taken)


def operations(model: PreTrainedModel, metrics: dict[str, int | float]) -> int:
    """Floating-point operations of a step (see `flops`), of every pass that the loop counted."""
    sizes = size.count_matrices(model)

    def passes(kind: str) -> Passes:
        path = f"{PREFIX}policy/{kind}"
        return Passes(
            positions=int(metrics.get(f"{path}/positions", 0)),
            outputs=int(metrics.get(f"{path}/outputs", 0)),
        )

    trained = flops.count_training_flops(sizes, passes("trained"))
    return trained + sum(flops.count_forward_flops(sizes, passes(k)) for k in ("sampled", "read"))


def _online(learner: Policy, number: int) -> Iterator[Step]:
    """GRPO without a reference."""
    words = setting.tokenizer()
    sampler = make_sampler(learner.model, words, max_batch=COMPUTE.max_batch)
    models = RlModels(
        policy=learner, reference=None, sampler=sampler,
        decode=model_tokenizer.make_decode(words),
    )  # fmt: skip
    config = GroupRlConfig(
        num_steps=number, prompts_per_step=PROMPTS, temperature=1.0, group_size=SAMPLES,
        max_new_tokens=setting.LENGTH, num_checkpoints=0, optim=OPTIM,
    )  # fmt: skip

    def judge(batch: Rollouts) -> CompletionRewards:
        return CompletionRewards(totals=setting.reward([s.token_ids for s in batch.samples]))

    rows = [
        Prompt(id=str(i), task="solve", question="", prompt="", prompt_ids=ids, answer="")
        for i, ids in enumerate(setting.prompts(PROMPTS))
    ]
    task = Task(prompts=rows, reward=judge, check_answers=None)
    method = presets.method("grpo_deepseekmath", aggregation="token_mean", kl="none")
    settings = Settings(config=config, method=method, seed=0)
    return rl.train(models, task, [range(PROMPTS)] * number, settings)
