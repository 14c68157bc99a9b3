"""Forecast of a stage's memory: two steps of its loop on fake tensors of the largest lengths.

torch's fake tensors (`FakeTensorMode`) have shape, type and device and take no memory and no time.
A model built of them goes through the stage's real code: forward and backward pass, gradient
checkpointing, autocast, adapters, optimizer. Token ids, masks, lengths and samples are real, since
loops branch on them. `item()` of a fake tensor is 0, or True. torch's `MemTracker` counts only
modules and optimizers that it was passed; the loops create theirs.

Every completion has the largest length, and an optimizer step has two micro-batches if it can: from
the second on, gradients, moments and activations coexist. Loop, preset, micro-batches and the
models held at once are those of the stage; the texts are arbitrary. For more layers than
`EXACT_LAYERS` two smaller models are measured: each phase is a line over the number of layers (2 %
too low was measured where activations are few). Only tensors are counted: on a GPU add the driver
and kernels, the gaps of the allocator, and three grids of rows x vocabulary of 8 bytes with which
the engine draws.
"""

import copy
import gc
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PretrainedConfig,
    PreTrainedModel,
)

from stages.engines.transformers import TransformersSampler
from stages.loops import kto, preference, process_reward, reward, rl, sft
from stages.loops.kto import KtoReference
from stages.loops.method import Settings
from stages.loops.rollouts import RlModels, Rollouts, Task
from stages.models import policy, row_policy
from stages.models.policy import Policy
from stages.models.process_head import ProcessHead
from stages.models.scalar_head import ScalarHead
from stages.records.preferences import Outcome, Preference
from stages.records.problems import Demonstration, Prompt
from stages.records.steps import StepLabels
from stages.rewards.completion_rewards import CompletionRewards
from stages.sampler import Sample

# --- counting

WHOLE = "update"
"""The phase outside all other phases."""


class LiveBytes(TorchDispatchMode):
    """Counter of bytes in tensor storages, each counted once, from its creation until it is freed.

    It does not see a kernel's temporary memory, or an allocator's rounding. It also computes
    operations that fake tensors do not support.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peaks: dict[str, int] = {}
        """Phase -> largest number of live bytes in it."""
        self._phase = WHOLE
        self._sizes: dict[int, int] = {}

    def see(self, tensor: Tensor) -> None:
        """Count the tensor's storage, if it is new."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self.live += storage.nbytes()
            self.peaks[self._phase] = max(self.peaks.get(self._phase, 0), self.live)
            weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self.live -= self._sizes.pop(key)

    def reset_peaks(self) -> None:
        """Reset the peaks."""
        gc.collect()
        self.peaks = {WHOLE: self.live}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Context whose peaks count for the phase `name`."""
        before = self._phase
        self.enter(name)
        try:
            yield
        finally:
            self._phase = before

    def enter(self, name: str) -> None:
        """From now on, peaks count for the phase `name`."""
        self._phase = name
        self.peaks[name] = max(self.peaks.get(name, 0), self.live)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            constant = torch.ones if args[0].dtype == torch.bool else torch.zeros
            return constant((), dtype=args[0].dtype).item()
        if func is torch.ops.aten.index.Tensor:
            # The number of True entries of a real mask is known; fake tensors would make it
            # unknown.
            places = [_where(index) for index in args[1]]
            args = (args[0], [place for parts in places for place in parts])
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.see(leaf)
        return result


def _where(index: Tensor | None) -> list[Tensor | None]:
    is_mask = index is not None and index.dtype == torch.bool and not isinstance(index, FakeTensor)
    return [*index.nonzero().unbind(1)] if is_mask else [index]  # pyright: ignore[reportOptionalMemberAccess]


class _AsArrays(TorchFunctionMode):
    """`numpy()` of a fake tensor: an array of its shape, all True or all 0."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.numpy and isinstance(args[0], FakeTensor):
            kind = np.bool_ if args[0].dtype == torch.bool else np.float32
            fill = np.ones if kind is np.bool_ else np.zeros
            return fill(tuple(args[0].shape), dtype=kind)
        return func(*args, **(kwargs or {}))


# --- models and texts of a trial

PAD, EOS, TEXT, MARK = 0, 1, 2, 3
HEADS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "policy": (Policy, AutoModelForCausalLM, {}),
    "reward": (ScalarHead, AutoModelForSequenceClassification, {"num_labels": 1}),
    "process": (ProcessHead, AutoModelForTokenClassification, {"num_labels": 2}),
}
"""Use of a model -> its class here, and its class in transformers with arguments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """Sizes of a stage that a model computes in."""

    entry_point: str
    config: Any
    """The entry point's `Config`, with its preset."""
    base: PretrainedConfig
    """Configuration of the policy, from which reward and value models are made."""
    prompt: int
    """Tokens of the longest prompt."""
    completion: int
    """Tokens of the longest completion."""
    samples: int
    """Completions of a prompt that are read or drawn together."""
    scorers: tuple[str, ...] = ()
    """Use of each model of a reward, a key of `HEADS`."""

    def completions(self, number: int) -> list[list[int]]:
        """Completions of the largest length, all different."""
        ids = [TEXT] * (self.completion - 1) + [EOS]
        return [[MARK + i % 7, *ids[1:]] if len(ids) > 1 else ids for i in range(number)]

    @property
    def num_processes(self) -> int:
        """Number of processes that train together; the first one is measured."""
        return getattr(self.config, "num_processes", 1)

    def numbers(self, num_prompts: int, per_prompt: int) -> range:
        """Prompts of an optimizer step in one process: at most two micro-batches."""
        length = self.prompt + per_prompt * self.completion
        per_process = -(-num_prompts // self.num_processes)
        return range(min(per_process, 2 * max(1, self.config.compute.max_tokens // length)))


def is_vllm(config: Any) -> bool:
    """Whether vLLM samples for a stage with this `Config`."""
    return getattr(config, "engine", "") == "vllm"


@dataclass(kw_only=True, slots=True)
class Models:
    """Fake models of a trial, whose bytes are counted."""

    trial: Trial
    live: LiveBytes
    fake: FakeTensorMode
    gradients: int = 0
    """Correction for gradients, in bytes; there are none outside an update."""
    at_work: int = 0
    """Bytes of the weights that are gathered while a model computes; only one does at a time."""

    def build(self, use: str, *, trained: bool = False, spread: bool = True) -> Any:
        """A model for `use`, as it is loaded; `trained`: with adapters, if there are any.

        `spread`: sharded over the processes, if there are several.
        """
        reader, auto_class, labels = HEADS[use]
        config = copy.deepcopy(self.trial.base)
        config.update({"pad_token_id": PAD, "step_token_id": EOS, "step_separator": "\n"} | labels)
        with self.fake:
            model = auto_class.from_config(config)
        # A fake tensor cannot be moved to another device.
        model.to = lambda *_: model
        for tensor in (*model.parameters(), *model.buffers()):
            self.live.see(tensor)
        device = torch.device("cpu")
        compute = self.trial.config.compute.model_copy(update={"compile": False})
        policy.prepare_model(model, compute, device, trained=trained)
        without = row_policy.add_adapters(model, self.trial.config.lora, 0) if trained else None
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if not isinstance(parameter, FakeTensor):  # an adapter's
                    fake = nn.Parameter(self.fake.from_tensor(parameter.detach()))
                    setattr(module, name, fake.requires_grad_(parameter.requires_grad))
        if spread and self.trial.num_processes > 1:
            self._spread(model, trained=trained)
        batching = self.trial.config.compute, PAD
        return Policy(model, *batching, without) if reader is Policy else reader(model, *batching)

    def _spread(self, model: PreTrainedModel, *, trained: bool) -> None:
        """Count what one process holds of a sharded model (`sharding`).

        A shard of weights, gradients and moments; in full, in the compute dtype, the weights
        outside the blocks, the present block and the next.
        """
        part, dtype = 1 / self.trial.num_processes, getattr(torch, self.trial.config.compute.dtype)
        kinds = model._no_split_modules or ()
        num_bytes = sum(tensor.nbytes for tensor in model.parameters())
        for tensor in model.parameters():
            # Gathered in the compute dtype, so that no matrix product keeps a cast copy.
            tensor.data = tensor.data.to(dtype)
        blocks = [_size(module) for module in model.modules() if type(module).__name__ in kinds]
        num_trained = sum(
            tensor.numel() for tensor in model.parameters() if trained and tensor.requires_grad
        )
        gradients = round((4 * part - dtype.itemsize) * num_trained)
        self.live.live += round(part * num_bytes) - dtype.itemsize * _size(model) + 3 * gradients
        at_work = dtype.itemsize * (_size(model) - sum(blocks) + 2 * max(blocks, default=0))
        self.live.live += max(0, at_work - self.at_work)
        self.at_work = max(at_work, self.at_work)
        self.gradients += gradients

    def sampler(self, model: PreTrainedModel, max_prompts: int = 2**30) -> "FullLength":
        """The stage's sampler of a model, for at most `max_prompts` prompts at once."""
        compute, engine = self.trial.config.compute, None
        if not is_vllm(self.trial.config):
            engine = TransformersSampler(
                model=model, eos_ids=frozenset([EOS]), pad_id=PAD, max_batch=compute.max_batch,
                max_tokens=compute.max_tokens,
            )  # fmt: skip
        return FullLength(engine=engine, trial=self.trial, live=self.live, max_prompts=max_prompts)


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@dataclass(frozen=True, kw_only=True, slots=True)
class FullLength:
    """Sampler whose completions are made up and have the maximal length.

    With the transformers engine, the memory of prefill and first token is counted. While it is
    awake the phase is `sampling` or `forward pass`.
    """

    engine: TransformersSampler | None
    """None: vLLM samples, whose memory is not counted here."""
    trial: Trial
    live: LiveBytes
    max_prompts: int
    """Prompts that the stage samples for at once."""

    def sample(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], **how: Any
    ) -> list[list[Sample]]:
        """Completions of the largest length; a fake token may end any, so the cache is complete."""
        with self.live.phase("sampling"):
            if self.engine is not None:
                num_prompts = min(
                    self.max_prompts, max(1, self.engine.max_batch // how["num_samples"])
                )
                self.engine.sample([prompts[0]] * num_prompts, [seeds[0]] * num_prompts, **how)
        self.live.enter("forward pass")
        samples = [
            Sample(token_ids=ids, logprobs=[0.0] * len(ids), finish_reason="stop")
            for ids in self.trial.completions(how["num_samples"])
        ]
        return [samples for _ in prompts]

    def sleep(self) -> None:
        """See `stages.sampler.ColocatedSampler.sleep`."""
        self.live.enter(WHOLE)

    def close(self) -> None:
        """See `stages.sampler.ColocatedSampler.close`."""


# --- the loop of each kind of stage

STEP = 16
"""Tokens of a reasoning step."""


def _sft(trial: Trial, models: Models) -> Iterator[Any]:
    config = trial.config
    settings = config.preset.override(config.sft)
    numbers = trial.numbers(settings.batch_size, 1)
    rows = [
        Demonstration(
            id=str(i), task="solve", prompt="", prompt_ids=[TEXT] * trial.prompt, completion="",
            completion_ids=ids,
        )
        for i, ids in enumerate(trial.completions(len(numbers)))
    ]  # fmt: skip
    rows = [sft.as_document(row) for row in rows] if config.preset.learn_prompt else rows
    model, teacher = models.build("policy", trained=True), None
    if (loss := config.preset.teacher) is not None:
        teacher = sft.Teacher(policy=models.build("policy"), loss=loss)
    return sft.train(model, rows, [numbers] * 2, settings, teacher=teacher)


def _pairs(trial: Trial, numbers: range) -> list[Preference]:
    chosen, rejected = trial.completions(2)
    return [
        Preference(
            id=str(i), prompt="", prompt_ids=[TEXT] * trial.prompt, chosen="", chosen_ids=chosen,
            rejected="", rejected_ids=rejected, probability=1.0, source="verifier",
        )
        for i in numbers
    ]  # fmt: skip


def _dpo(trial: Trial, models: Models) -> Iterator[Any]:
    sizes, preset = trial.config.dpo, trial.config.preset
    model, numbers = models.build("policy", trained=True), trial.numbers(sizes.batch_size, 2)
    pairs = _pairs(trial, numbers)
    if preset.kind != preference.KTO:
        zeros = torch.zeros(len(pairs), 2)
        return preference.train(model, pairs, zeros, [numbers] * 2, preset, sizes)
    rows = kto.make_unpaired_examples(pairs)
    schedule = [range(min(len(rows), sizes.batch_size))] * 2
    mismatched = [torch.zeros(len(rows_of_step)) for rows_of_step in schedule]
    reference = KtoReference(matched=torch.zeros(len(rows)), mismatched=mismatched)
    return kto.train(model, rows, reference, schedule, preset, sizes)


def _reward_preference(trial: Trial, models: Models) -> Iterator[Any]:
    preset = trial.config.preset
    model, numbers = models.build("reward", trained=True), trial.numbers(preset.batch_size, 2)
    pairs = _pairs(trial, numbers)
    return reward.train(model, pairs, [numbers] * 2, preset)


def _reward_outcome(trial: Trial, models: Models) -> Iterator[Any]:
    preset = trial.config.preset
    each = min(trial.samples, preset.max_per_problem)
    model, numbers = models.build("reward", trained=True), trial.numbers(preset.batch_size, each)
    problems = [
        [
            Outcome(
                id=str(i), prompt_ids=[TEXT] * trial.prompt, completion_ids=ids, right=j % 2 == 0,
                weight=1.0,
            )
            for j, ids in enumerate(trial.completions(each))
        ]
        for i in numbers
    ]  # fmt: skip
    return reward.train_outcomes(model, problems, [numbers] * 2, preset)


def _reward_process(trial: Trial, models: Models) -> Iterator[Any]:
    preset = trial.config.preset
    model, rows = models.build("process", trained=True), []
    for i in trial.numbers(preset.batch_size, trial.samples):
        for j, ids in enumerate(trial.completions(trial.samples)):
            steps = [ids[start : start + STEP] for start in range(0, len(ids), STEP)]
            rows.append(
                StepLabels(
                    id=str(i), index=j, prompt="", prompt_ids=[TEXT] * trial.prompt,
                    steps=[""] * len(steps), step_ids=steps, labels=[1.0] * len(steps),
                    num_completions=[0] * len(steps), true_labels=None, correct=None, source="",
                )
            )  # fmt: skip
    schedule = [range(len(rows))] * 2
    return process_reward.train(model, rows, schedule, preset)


def _online(trial: Trial, models: Models) -> Iterator[Any]:
    config = trial.config
    is_ppo = trial.entry_point == "train_ppo"
    sizes = config.ppo if is_ppo else config.grpo
    # More epochs and mini-batches add only a grid of old log-probs. The two steps of the trial also
    # train the policy.
    single = {"num_epochs": 1, "num_minibatches": 1, "value_warmup_steps": 0}
    preset = config.preset.model_copy(update=single)
    numbers = trial.numbers(
        -(-sizes.prompts_per_step // config.preset.num_minibatches), trial.samples
    )
    max_prompts = sizes.prompts_per_step * preset.max_rounds
    sizes = sizes.model_copy(update={"prompts_per_step": len(numbers), "num_steps": 2})
    settings = Settings(config=sizes, method=preset.for_engine("transformers"), seed=0)
    trained = models.build("policy", trained=True)
    initial = teacher = None
    if preset.measures_kl or preset.teacher_reads_solution:
        initial = trained if trial.config.lora.rank else models.build("policy")
    if preset.has_teacher:
        teacher = initial if preset.teacher_reads_solution else models.build("policy")
    # See `engines/loading`: each of several processes samples from a full copy.
    drawn_from = trained if trial.num_processes == 1 else models.build("policy", spread=False)
    actor = RlModels(
        policy=trained, reference=initial if preset.measures_kl else None, teacher=teacher,
        decode=lambda _: "", sampler=models.sampler(drawn_from.model, max_prompts),
    )  # fmt: skip
    task = Task(
        prompts=[
            Prompt(id=str(i), task="solve", question="", prompt="", answer="",
                   prompt_ids=[TEXT] * trial.prompt)
            for i in range(settings.max_prompts())
        ],
        reward=_rewards(trial, models),
        check_answers=None,
    )  # fmt: skip
    if preset.teacher_reads_solution:  # longest prompt and solution
        shown = [TEXT] * (2 * trial.prompt + trial.completion)
        task = replace(task, teacher_prompts={prompt.id: shown for prompt in task.prompts})
    schedule = [range(len(task.prompts))] * 2
    if is_ppo:
        actor = replace(actor, value=models.build("reward", trained=True))
    return rl.train(actor, task, schedule, settings)


def _rewards(trial: Trial, models: Models) -> Callable[[Rollouts], CompletionRewards]:
    """Reward whose models are loaded, but whose numbers are invented, all different.

    Their forward passes need no more memory than those of the policy.
    """
    scorers = [models.build(use, spread=False) for use in trial.scorers]

    def reward(batch: Rollouts) -> CompletionRewards:
        totals = [float(i % trial.samples) for i in range(len(batch.samples))]
        if not isinstance(scorers[0] if scorers else None, ProcessHead):
            return CompletionRewards(totals=totals)
        ends = torch.zeros_like(batch.mask())
        ends[:, -1] = True
        paid = ends * torch.tensor(totals)[:, None]
        return CompletionRewards(totals=[0.0] * len(ends), step_rewards=paid, step_ends=ends)

    return reward


def _sampling(trial: Trial, models: Models) -> Iterator[Any]:
    sampler = models.sampler(models.build("policy").model)
    models.live.reset_peaks()
    is_judge, prompt = trial.entry_point == "label_judge", [TEXT] * trial.prompt
    if trial.completion > 1:  # a judge of one token does not think before it chooses
        settings = {"temperature": 1.0, "max_new_tokens": trial.completion}
        sampler.sample([prompt], [0], num_samples=1 if is_judge else trial.samples, **settings)
    if is_judge:
        number = max(1, trial.config.compute.max_tokens // trial.prompt)
        with models.live.phase("forward pass"):
            list(sampler.engine.next_logprobs([prompt] * number, [EOS]))  # pyright: ignore[reportOptionalMemberAccess]
    return iter(())


ONLINE = ("train_ppo", "train_grpo")
"""Entry points that sample from the policy that they train."""
LOOPS: dict[str, Callable[[Trial, Models], Iterator[Any]]] = {
    "train_sft": _sft, "train_dpo": _dpo, "train_ppo": _online, "train_grpo": _online,
    "reward_preference": _reward_preference, "reward_outcome": _reward_outcome,
    "reward_process": _reward_process, "pool": _sampling, "sample": _sampling,
    "play_policy": _sampling, "steps_completions": _sampling, "label_revision": _sampling,
    "label_judge": _sampling,
}  # fmt: skip
"""Entry point -> iterator of its loop's steps; if it yields none, the call has run it all."""


# --- the peak

EXACT_LAYERS = 4
"""Largest number of layers of a model that is measured as it is."""


def choose_layers(base: PretrainedConfig) -> tuple[int, ...]:
    """Numbers of layers to measure: all, or n and 2 n of a larger model."""
    text = base.get_text_config(decoder=True)
    total, kinds = int(text.num_hidden_layers), getattr(text, "layer_types", None)
    # The period of layers that differ.
    period = next(p for p in range(1, total + 1) if not kinds or kinds[p:] == kinds[:-p])
    num_small = period * -(-2 // period)
    return (total,) if total <= max(EXACT_LAYERS, 2 * num_small) else (num_small, 2 * num_small)


def keep_layers(base: PretrainedConfig, num_layers: int) -> PretrainedConfig:
    """Configuration of the model with its first `num_layers` layers."""
    base = copy.deepcopy(base)
    text = base.get_text_config(decoder=True)
    text.num_hidden_layers = num_layers
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:num_layers]
    return base


def predict_peaks(trial: Trial) -> dict[str, int]:
    """Phase -> peak bytes of live tensors: `update`, `sampling`, `forward pass`."""
    total = trial.base.get_text_config(decoder=True).num_hidden_layers
    peaks = {number: measure_peaks(trial, number) for number in choose_layers(trial.base)}
    few, many = min(peaks), max(peaks)
    if few == many:
        return peaks[few]
    share = (total - few) / (many - few)
    return {
        phase: round(peaks[few][phase] + share * (peak - peaks[few][phase]))
        for phase, peak in peaks[many].items()
    }


def measure_peaks(trial: Trial, num_layers: int) -> dict[str, int]:
    """Phase -> peak bytes, measured on a model with `num_layers` layers."""
    low = trial.config.compute.dtype == "bfloat16"
    with (
        warnings.catch_warnings(),
        torch.autocast("cpu", torch.bfloat16, low, cache_enabled=False),  # as of `device.setup`
        LiveBytes() as live,
        _AsArrays(),
    ):
        # peft copies a head, which asks for the address of a fake tensor.
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
        trial = replace(trial, base=keep_layers(trial.base, num_layers))
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        models = Models(trial=trial, live=live, fake=fake)
        steps = LOOPS[trial.entry_point](trial, models)
        if next(steps, None) is not None:
            live.reset_peaks()
            next(steps)
    return {phase: peak - models.gradients * (phase != WHOLE) for phase, peak in live.peaks.items()}
