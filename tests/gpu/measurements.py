"""What is measured on a GPU: every function yields rows of the table, the same on any scale."""

import copy
import importlib.util
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from stages.algorithms import flops
from stages.algorithms.flops import Passes
from stages.engines import vllm
from stages.engines.transformers import TransformersSampler
from stages.engines.vllm_policy import PolicySampler
from stages.loops import overlap, rl, sft
from stages.loops.method import GroupRlConfig, Settings
from stages.loops.rl import Minibatch, TokenGrids
from stages.loops.rollouts import RlModels, Rollouts, Task
from stages.models import device as devices
from stages.models import policy, row_policy, sharding, size
from stages.models.batch import Batch, Group, eval_no_grad, make_batch
from stages.models.policy import Policy
from stages.models.row_policy import LoraConfig
from stages.optim import OptimConfig, make_adamw, step_optimizer
from stages.planning import cost
from stages.planning.cost import Trial
from stages.records.problems import Demonstration, Prompt
from stages.rewards.completion_rewards import CompletionRewards
from stages.runtime import gpu_slot, ranks
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
FAST = {"compile": True, "gradient_checkpointing": False}
"""What `auto` chooses for these models on a large GPU."""
PACKED, PACKED_ROWS = {"pack_tokens": 32_768}, 2
"""Several demonstrations in a row, whose attention is by their starts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """A row of the table."""

    name: str
    value: float
    unit: str
    target: str = ""
    met: bool | None = None
    """None: nothing to meet."""


Row = Measurement | str
"""Row of the table, or lines of text below it."""


def prepared(config, device: torch.device, **changes: Any) -> PreTrainedModel:
    """A random model as a stage would load it; `changes` of `scales.COMPUTE`."""
    compute = COMPUTE.model_copy(update=changes)
    return policy.prepare_model(build(config, device), compute, device)


def bits(scale: Scale, device: torch.device) -> Iterator[Row]:
    """(a) Log-probs in bfloat16; the same bits twice, compiled, packed, recomputed, or not."""
    model = prepared(scale.trained, device)
    batch = _batch(scale, [min(1024, scale.sft_tokens)], device)
    with eval_no_grad(model):
        low = Policy(model)(batch, temperature=1.0).logprobs
        with torch.autocast(device.type, enabled=False):
            high = Policy(model)(batch, temperature=1.0).logprobs
    del model
    gap = (low - high).abs()[batch.mask]
    yield _at_most("log-probs in bf16 against float32: mean difference", gap.mean(), "nats", 0.02)
    yield _at_most("largest", gap.max(), "nats", 0.25)
    plain = _end_of_two_steps(scale, device)
    for name, changes in {
        "twice": {}, "without recomputed activations": {"gradient_checkpointing": False},
    }.items():  # fmt: skip
        differing = _count_differing(plain, _end_of_two_steps(scale, device, **changes))
        yield _at_most(f"weights that differ after two steps, {name}", differing, "numbers", 0)
    del plain
    for name, *changes in (
        ("compiled, twice", {"compile": True}, {"compile": True}),
        ("compiled, without recomputed activations", {"compile": True}, FAST),
        ("packed rows, twice", PACKED, PACKED),
    ):
        differing = _count_differing(
            *(_end_of_two_steps(scale, device, **each) for each in changes)
        )
        yield _at_most(f"weights that differ after two steps, {name}", differing, "numbers", 0)
    model = prepared(scale.trained, device, compile=True)
    with eval_no_grad(model):
        compiled = Policy(model)(batch, temperature=1.0).logprobs
    gap = (low - compiled).abs()[batch.mask]
    yield _at_most("log-probs of compiled layers: mean difference", gap.mean(), "nats", 0.02)


def _end_of_two_steps(scale: Scale, device: torch.device, **changes: Any) -> list[torch.Tensor]:
    model, compute = prepared(scale.trained, device, **changes), COMPUTE.model_copy(update=changes)
    num_rows = PACKED_ROWS if compute.pack_tokens else 1
    list(_sft_steps(Policy(model, compute, 0), scale, 2, num_rows, scale.sft_tokens // num_rows))
    return [parameter.detach().cpu() for parameter in model.parameters()]


def _count_differing(some: list[torch.Tensor], others: list[torch.Tensor]) -> int:
    return sum(int((a != b).sum()) for a, b in zip(some, others, strict=True))


def training(scale: Scale, device: torch.device) -> Iterator[Row]:
    """(b) Speed, memory and profile of SFT on one long row a step."""
    model = prepared(scale.trained, device, **FAST)
    sizes, counted = size.count_matrices(model), scale.sft_tokens - PROMPT
    steps = _sft(model, scale, scale.steps + 2)
    next(steps)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = _time(lambda: [next(steps) for _ in range(scale.steps)], device) / scale.steps
    passes = Passes(positions=scale.sft_tokens, outputs=counted)
    rate, share = scale.sft_tokens / seconds, flops.count_training_flops(sizes, passes) / seconds
    yield _speed("SFT, 0.6B, rows of 8k", rate, 45_000)
    yield Measurement(
        name="its share of the peak (MFU)", value=100 * share / BFLOAT16_PEAK, unit="%",
        target="at least 30", met=share >= 0.3 * BFLOAT16_PEAK,
    )  # fmt: skip
    if device.type == "cuda":
        yield _memory(torch.cuda.max_memory_allocated(), scale)
    yield _profile("A step of SFT", lambda: next(steps))


def _profile(name: str, run: Callable[[], object]) -> str:
    """The ten kernels that take most time, as lines of text."""
    with torch.profiler.profile() as profile:
        run()
    on_gpu = torch.cuda.is_available()

    def spent(event: Any) -> float:
        return event.self_device_time_total if on_gpu else event.self_cpu_time_total

    events = sorted(profile.key_averages(), key=spent, reverse=True)
    whole = sum(map(spent, events))
    lines = [f"{spent(e) / 1000:9.2f} ms {e.count:6} x {e.key:.90}" for e in events[:10]]
    return "\n".join([f"{name}, {whole / 1000:.1f} ms of kernels:", *lines])


def update_speed(scale: Scale, device: torch.device) -> Iterator[Row]:
    """(d) Tokens a second of a policy gradient step: both passes and the optimizer."""
    model = prepared(scale.trained, device, **FAST).train()
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
    yield _speed("RL update, 0.6B, 16k", number / seconds, 24_000)
    yield _profile("An update", step)


def rollouts(scale: Scale, device: torch.device) -> Iterator[Row]:
    """(c) Tokens a second of the samplers; no token ends a completion of the own one."""
    model, rows = prepared(scale.sampled, device), scale.prompts * scale.samples
    name = "rollouts, 1.5B, 512 x 512"
    for is_fixed in (True, False):
        sampler = TransformersSampler(
            model=model, eos_ids=frozenset(), pad_id=0, max_batch=rows, check_every=16,
            has_fixed_shapes=is_fixed,
        )  # fmt: skip
        rate = _sampling_rate(sampler, scale, device)
        yield _speed(f"{name}, own sampler{', without a graph' * (not is_fixed)}", rate,
                     None if not is_fixed else 30_000)  # fmt: skip
    del model, sampler
    if (missing := missing_vllm()) is not None:
        yield missing
        return
    if device.type == "cuda":
        torch.cuda.empty_cache()
    with tempfile.TemporaryDirectory() as folder:
        _write_config(scale, folder)
        engine = vllm.start_vllm(
            folder, dtype="bfloat16", max_model_len=PROMPT + scale.new_tokens, load_format="dummy"
        )
        yield _speed(f"{name}, vLLM", _sampling_rate(engine, scale, device), None)
        engine.close()


def missing_vllm() -> str | None:
    """Why vLLM is not measured; None: it is installed."""
    return None if importlib.util.find_spec("vllm") else "vLLM is not installed: not measured."


def _write_config(scale: Scale, folder: str) -> None:
    """All that vLLM reads where the policy brings the weights, or none are needed."""
    config = copy.deepcopy(scale.sampled)
    config.architectures, config.eos_token_id = ["Qwen2ForCausalLM"], _list_ends(scale)
    config.save_pretrained(folder)


def _list_ends(scale: Scale) -> list[int]:
    """So many tokens that most completions of a random model end before their limit."""
    return list(range(1, scale.sampled.vocab_size, scale.new_tokens))


def _sampling_rate(sampler: Any, scale: Scale, device: torch.device) -> float:
    prompts = [token_ids(PROMPT, scale.sampled, i) for i in range(scale.prompts)]

    def draw(length: int) -> int:
        groups = sampler.sample(
            prompts, list(range(scale.prompts)), num_samples=scale.samples, temperature=1.0,
            max_new_tokens=length,
        )  # fmt: skip
        return sum(len(sample.token_ids) for group in groups for sample in group)

    draw(2)
    numbers: list[int] = []
    seconds = _time(lambda: numbers.append(draw(scale.new_tokens)), device)
    return numbers[0] / seconds


def reinforcement(scale: Scale, device: torch.device) -> Iterator[Row]:
    """(e) Five steps of GRPO with LoRA; vLLM samples where it is installed."""
    missing = missing_vllm()
    if missing is not None:
        yield missing
    with tempfile.TemporaryDirectory() as folder:
        trainer = _make_trainer(scale, device, folder if missing is None else None, **FAST)
        sampler: Any = trainer.models.sampler
        refreshes, sleeps = list[float](), list[float]()
        for name, times in (("_wake_and_refresh", refreshes), ("sleep", sleeps)):
            if (call := getattr(sampler, name, None)) is not None:
                setattr(sampler, name, partial(_record_time, call, times, device))
        starts, gaps = [time.perf_counter()], list[float]()
        for step in rl.train(trainer.models, trainer.task, _schedule(trainer), trainer.settings):
            if "sampling/logprob_gap" in step.metrics:  # a step without a gradient has none
                gaps.append(float(step.metrics["sampling/logprob_gap"]))
            starts.append(time.perf_counter())
        if missing is None:
            sampler.close()
    steps = np.diff(starts)
    yield _at_most("GRPO, 1.5B, LoRA: seconds a step, without the first", steps[1:].mean(), "s")
    yield _at_most("sampler's log-probs against the trainer's, mean", max(gaps), "nats", 0.02)
    if refreshes:
        yield _at_most("wake-up and weight transfer", 1000 * max(refreshes[1:]), "ms", 1000)
        yield _at_most("sleep", 1000 * max(sleeps), "ms")


def _make_trainer(
    scale: Scale,
    device: torch.device,
    folder: str | None = None,
    *,
    staleness: int = 0,
    **changes: Any,
) -> rl.Trainer:
    """GRPO with LoRA and a reward of even tokens; vLLM samples if there is a folder for it."""
    model = prepared(scale.sampled, device, **changes)
    disable = row_policy.add_adapters(model, LoraConfig(rank=scale.lora_rank, alpha=32), 0)
    if folder is not None:
        _write_config(scale, folder)
        sampler: Any = PolicySampler(
            policy=model, source=(folder, None), compute=COMPUTE, num_trained=1,
            max_length=PROMPT + scale.new_tokens,
        )  # fmt: skip
    else:
        sampler = TransformersSampler(
            model=model, eos_ids=frozenset(_list_ends(scale)), pad_id=0, max_batch=512,
            check_every=16, has_fixed_shapes=True,
        )  # fmt: skip
    compute = COMPUTE.model_copy(update=changes | {"max_tokens": 8192})
    models = RlModels(
        policy=Policy(model, compute, 0, disable), reference=None, sampler=sampler,
        decode=lambda ids: " ".join(map(str, ids)),
    )  # fmt: skip
    prompts = [
        Prompt(
            id=str(i), task="solve", question="", prompt="", answer="",
            prompt_ids=token_ids(PROMPT, scale.sampled, i),
        )
        for i in range(max(2, scale.prompts // 4))
    ]  # fmt: skip
    sizes = GroupRlConfig(
        num_steps=5, prompts_per_step=len(prompts), group_size=scale.samples, temperature=1.0,
        num_checkpoints=0, max_new_tokens=scale.new_tokens, optim=OPTIM,
    )  # fmt: skip
    method = presets.method("dr_grpo").model_copy(update={"staleness": staleness})
    method = method.for_engine("transformers" if folder is None else "vllm")
    task = Task(prompts=prompts, reward=_reward_even, check_answers=None)
    settings = Settings(config=sizes, method=method, seed=0)
    return rl.Trainer(models=models, task=task, settings=settings)


def _schedule(trainer: rl.Trainer) -> list[range]:
    return [range(len(trainer.task.prompts))] * trainer.settings.config.num_steps


def _reward_even(batch: Rollouts) -> CompletionRewards:
    samples = [sample.token_ids for sample in batch.samples]
    return CompletionRewards(totals=[sum(i % 2 for i in ids) / len(ids) for ids in samples])


def _record_time(call: Callable[..., Any], times: list[float], device: Any, *words: Any) -> None:
    times.append(_time(lambda: call(*words), device))


def two_gpus(scale: Scale, device: torch.device) -> Iterator[Row]:
    """(f) A model in halves, two seeds side by side, and a sampler beside the trainer.

    Each in forked processes: in this one CUDA never begins, so that they can.
    """
    if device.type == "cuda" and len(gpu_slot.devices()) < 2:
        yield "One GPU: two were not measured."
        return
    (rate,) = _fork(_train_halves, scale)
    yield _speed("SFT, 0.6B, a row of 8k in each of two processes", rate, None)
    (alone,) = _fork(_train_seed, scale)
    both = _fork(_train_seed, scale, number=2)
    yield Measurement(
        name="two seeds of SFT side by side, the slower one against one alone",
        value=100 * min(both) / alone, unit="%", target="at least 90", met=min(both) >= 0.9 * alone,
    )  # fmt: skip
    (without,) = _fork(partial(_train_stale, sampler=False), scale)
    (beside,) = _fork(partial(_train_stale, sampler=True), scale)
    yield _at_most("GRPO, 1.5B, staleness 1: seconds a step, one GPU", without, "s")
    yield _at_most("the same, its sampler on the second GPU", beside, "s", without)


def _fork(work: Callable[[Scale], float], scale: Scale, number: int = 1) -> list[float]:
    """Results of so many forked processes that work at once."""
    with ProcessPoolExecutor(number, multiprocessing.get_context("fork")) as pool:
        return list(pool.map(work, [scale] * number))


def _train_halves(scale: Scale) -> float:
    """Tokens a second of SFT in this process and another one, each with half of all weights."""
    rates: list[float] = []

    def work(_: int) -> None:
        here = devices.setup(COMPUTE)
        learner = sharding.shard_model(Policy(prepared(scale.trained, here), COMPUTE, 0))
        rates.append(_training_rate(learner, scale, here, rows=2))

    with (
        gpu_slot.take(2), tempfile.TemporaryDirectory() as folder,
        ranks.joined(work, 2, Path(folder)) as rank,
    ):  # fmt: skip
        work(rank)
    return rates[0]


def _train_seed(scale: Scale) -> float:
    """Tokens a second of SFT on a GPU that no other process has."""
    with gpu_slot.take():
        here = devices.setup(COMPUTE)
        return _training_rate(Policy(prepared(scale.trained, here), COMPUTE, 0), scale, here)


def _training_rate(learner: Policy, scale: Scale, device: torch.device, rows: int = 1) -> float:
    steps = _sft_steps(learner, scale, scale.steps + 1, rows)
    next(steps)
    seconds = _time(lambda: [next(steps) for _ in range(scale.steps)], device)
    return rows * scale.sft_tokens * scale.steps / seconds


def _train_stale(scale: Scale, *, sampler: bool) -> float:
    """Seconds a step of GRPO whose batches are drawn a step ahead, maybe by another process."""

    def load(place: int) -> rl.Trainer:
        if names:
            gpu_slot.show(place)
        return _make_trainer(scale, devices.setup(COMPUTE), staleness=1)

    with gpu_slot.take(2) as names, ExitStack() as stack:
        process = None
        if sampler:
            process = stack.enter_context(closing(overlap.fork_sampler(lambda: load(1))))
        trainer = load(0)
        schedule = _schedule(trainer)[:3]
        steps = rl.train(trainer.models, trainer.task, schedule, trainer.settings, None, process)
        next(steps)
        device = trainer.models.policy.device
        return _time(lambda: list(steps), device) / (len(schedule) - 1)


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
        compute=COMPUTE.model_copy(update=FAST), lora=LoraConfig(rank=0, alpha=16), sft=SFT,
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
    return _sft_steps(Policy(model, COMPUTE, 0), scale, number)


def _sft_steps(
    learner: Policy, scale: Scale, number: int, rows: int = 1, length: int | None = None
) -> Iterator[object]:
    ids = token_ids(length or scale.sft_tokens, scale.trained)
    demonstrations = [
        Demonstration(
            id=str(i), task="solve", prompt="", prompt_ids=ids[:PROMPT], completion="",
            completion_ids=ids[PROMPT:],
        )
        for i in range(rows)
    ]  # fmt: skip
    return sft.train(learner, demonstrations, [range(rows)] * number, SFT)


def _batch(scale: Scale, lengths: list[int], device: torch.device) -> Batch:
    groups = [
        Group(
            prompt_ids=token_ids(PROMPT, scale.trained, i),
            completions=[token_ids(n - PROMPT, scale.trained, 100 + i) if n > PROMPT else [2]],
            indices=[i],
        )
        for i, n in enumerate(lengths)
    ]
    return make_batch([[[group] for group in groups]], 0, device)


def _speed(name: str, rate: float, target: int | None) -> Measurement:
    met = None if target is None else rate >= target
    words = "" if target is None else f"at least {target:,}"
    return Measurement(name=name, value=rate, unit="tokens/s", target=words, met=met)


def _at_most(name: str, value: Any, unit: str, limit: float | None = None) -> Measurement:
    met = None if limit is None else bool(value <= limit)
    words = "" if limit is None else f"at most {limit:g}"
    return Measurement(name=name, value=float(value), unit=unit, target=words, met=met)


def _time(run: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


PARTS: dict[str, tuple[Callable[[Scale, torch.device], Iterator[Row]], int]] = {
    "bits": (bits, 130),
    "training": (training, 100),
    "rollouts": (rollouts, 160),
    "update": (update_speed, 50),
    "reinforcement": (reinforcement, 150),
    "two_gpus": (two_gpus, 90),
}
"""Name -> what is measured, and its limit in seconds; the first says whether the others are worth
anything."""
