"""What is measured on a GPU: every function returns rows of the table, the same on any scale."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from transformers import PreTrainedModel

from stages.algorithms import flops
from stages.algorithms.flops import Passes
from stages.engines.transformers import TransformersSampler
from stages.loops import rl, sft
from stages.loops.method import GroupRlConfig, Settings
from stages.loops.rl import Minibatch, TokenGrids
from stages.models import policy, size
from stages.models.batch import Batch, Group, eval_no_grad, make_batch
from stages.models.policy import Policy
from stages.models.row_policy import LoraConfig
from stages.optim import OptimConfig, make_adamw, step_optimizer
from stages.planning import cost
from stages.planning.cost import Trial
from stages.records.problems import Demonstration
from tests import presets
from tests.gpu.scales import COMPUTE, Scale, build, token_ids

OPTIM = OptimConfig(
    learning_rate=1e-5, warmup_share=0.0, schedule="constant", weight_decay=0.0, max_grad_norm=1.0
)
SFT = sft.SftConfig(num_epochs=1, batch_size=1, optim=OPTIM)
BFLOAT16_PEAK = 989e12
"""Operations a second of an H100's or H200's matrix units, dense (NVIDIA's data sheet)."""
PROMPT = 32
"""Tokens before what is learned or sampled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """A row of the table."""

    name: str
    value: float
    unit: str
    target: str = ""
    met: bool | None = None
    """None: nothing to meet."""


def prepared(config, device: torch.device) -> PreTrainedModel:
    """A random model as a stage would load it."""
    return policy.prepare_model(build(config, device), COMPUTE, device)


def bfloat16_logprobs(scale: Scale, device: torch.device) -> list[Measurement]:
    """Log-probs under autocast against float32's, of the same weights and tokens."""
    model = prepared(scale.trained, device)
    batch = _batch(scale, [min(1024, scale.sft_tokens)], device)
    with eval_no_grad(model):
        low = Policy(model)(batch, temperature=1.0).logprobs
        with torch.autocast(device.type, enabled=False):
            high = Policy(model)(batch, temperature=1.0).logprobs
    gap = (low - high).abs()[batch.mask]
    mean, largest = gap.mean().item(), gap.max().item()
    return [
        Measurement(
            name="log-probs in bf16 against float32: mean difference", value=mean, unit="nats",
            target="at most 0.02", met=mean <= 0.02,
        ),
        Measurement(
            name="largest", value=largest, unit="nats", target="at most 0.25", met=largest <= 0.25
        ),
    ]  # fmt: skip


def determinism(scale: Scale, device: torch.device) -> list[Measurement]:
    """Two steps of SFT from the same start, twice: numbers that differ."""
    ends = []
    for _ in range(2):
        model = prepared(scale.trained, device)
        list(_sft(model, scale, 2))
        ends.append([parameter.detach().cpu() for parameter in model.parameters()])
        del model
    differing = sum(int((a != b).sum()) for a, b in zip(*ends, strict=True))
    return [
        Measurement(
            name="weights that differ after two steps, twice", value=differing, unit="numbers",
            target="0", met=differing == 0,
        )
    ]  # fmt: skip


def training(scale: Scale, device: torch.device) -> list[Measurement]:
    """Speed and memory of SFT on one long row a step."""
    model = prepared(scale.trained, device)
    sizes, counted = size.count_matrices(model), scale.sft_tokens - PROMPT
    steps = _sft(model, scale, scale.steps + 1)
    next(steps)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = _time(lambda: [next(steps) for _ in range(scale.steps)], device) / scale.steps
    passes = Passes(positions=scale.sft_tokens, outputs=counted)
    rate, share = scale.sft_tokens / seconds, flops.count_training_flops(sizes, passes) / seconds
    result = [
        _speed("SFT, 0.6B, rows of 8k", rate, 52_000),
        Measurement(
            name="its share of the peak (MFU)", value=100 * share / BFLOAT16_PEAK, unit="%",
            target="at least 35", met=share >= 0.35 * BFLOAT16_PEAK,
        ),
    ]  # fmt: skip
    if device.type == "cuda":
        result.append(_memory(torch.cuda.max_memory_allocated(), scale))
    return result


def update_speed(scale: Scale, device: torch.device) -> list[Measurement]:
    """Tokens a second of a policy gradient step, its forward and backward pass and optimizer."""
    model = prepared(scale.trained, device).train()
    policy_model, optimizer = Policy(model), make_adamw(model, OPTIM)
    batch = _batch(scale, [scale.update_tokens // 4] * 4, device)
    zeros = torch.zeros(batch.mask.shape, device=device)
    grids = TokenGrids(sampler_logprobs=zeros, advantages=zeros + 1.0, right=batch.mask)
    number = int(batch.mask.sum())
    minibatch = Minibatch(
        batches=[batch], num_tokens=number, num_sequences=4, num_right_tokens=number
    )
    sizes = GroupRlConfig(
        num_steps=1, prompts_per_step=4, group_size=2, temperature=1.0, num_checkpoints=0,
        max_new_tokens=batch.mask.shape[1], optim=OPTIM,
    )  # fmt: skip
    settings = Settings(config=sizes, method=presets.method("dr_grpo"), seed=0)

    def step() -> None:
        new = policy_model(batch, temperature=1.0, entropy_gradient=False)
        old = new.logprobs.detach()
        loss, _ = rl.policy_loss(new, old, grids, batch.mask, minibatch, settings)
        loss.backward()
        step_optimizer(optimizer, OPTIM, 0, 1)

    step()
    seconds = _time(lambda: [step() for _ in range(scale.steps)], device) / scale.steps
    return [_speed("RL update, 0.6B, 16k", number / seconds, 24_000)]


def rollouts(scale: Scale, device: torch.device) -> list[Measurement]:
    """Tokens a second of the own sampler; no token ends a completion."""
    model = prepared(scale.sampled, device)
    rows = scale.prompts * scale.samples
    sampler = TransformersSampler(model=model, eos_ids=frozenset(), pad_id=0, max_batch=rows)
    prompts = [token_ids(PROMPT, scale.sampled, i) for i in range(scale.prompts)]

    def draw(length: int) -> None:
        sampler.sample(
            prompts, list(range(scale.prompts)), num_samples=scale.samples, temperature=1.0,
            max_new_tokens=length,
        )  # fmt: skip

    draw(2)
    seconds = _time(lambda: draw(scale.new_tokens), device)
    rate = rows * scale.new_tokens / seconds
    return [_speed("rollouts, 1.5B, 512 x 512, own sampler", rate, 15_000)]


def _memory(peak: int, scale: Scale) -> Measurement:
    predicted = predicted_peak(scale)
    off = 100 * (peak / predicted - 1)
    return Measurement(
        name=f"peak memory of SFT against {predicted / 2**30:.1f} GiB predicted", value=off,
        unit="%", target="within 10", met=abs(off) <= 10,
    )  # fmt: skip


def predicted_peak(scale: Scale) -> int:
    """What the plan says of a step of SFT on one row."""
    config = SimpleNamespace(
        compute=COMPUTE, lora=LoraConfig(rank=0, alpha=16), sft=SFT,
        preset=sft.SftPreset(
            num_epochs=None, learning_rate=None, num_demonstrations=None, tasks=None,
            learn_prompt=False,
        ),
    )  # fmt: skip
    trial = Trial(
        entry_point="train_sft", config=config, base=scale.trained, prompt=PROMPT,
        completion=scale.sft_tokens - PROMPT, samples=1,
    )  # fmt: skip
    return max(cost.predict_peaks(trial).values())


def _sft(model: PreTrainedModel, scale: Scale, number: int) -> Iterator[object]:
    ids = token_ids(scale.sft_tokens, scale.trained)
    row = Demonstration(
        id="0", task="solve", prompt="", prompt_ids=ids[:PROMPT], completion="",
        completion_ids=ids[PROMPT:],
    )  # fmt: skip
    return sft.train(Policy(model, COMPUTE, 0), [row], [[0]] * number, SFT)


def _batch(scale: Scale, lengths: list[int], device: torch.device) -> Batch:
    groups = [
        Group(
            prompt_ids=token_ids(PROMPT, scale.trained, i),
            completions=[token_ids(n - PROMPT, scale.trained, 100 + i) if n > PROMPT else [2]],
            indices=[i],
        )
        for i, n in enumerate(lengths)
    ]
    return make_batch([[group] for group in groups], 0, device)


def _speed(name: str, rate: float, target: int) -> Measurement:
    return Measurement(
        name=name, value=rate, unit="tokens/s", target=f"at least {target:,}", met=rate >= target
    )


def _time(run: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


MEASUREMENTS = (bfloat16_logprobs, determinism, training, update_speed, rollouts)
"""In the order in which they run; the first ones say whether the others are worth anything. Not
here, for want of a GPU with vLLM: its rollouts (target: 70 % of its own benchmark), refresh with
wake-up (2 s at 1.5B), and log-probs against the trainer's (0.02 in the mean)."""
