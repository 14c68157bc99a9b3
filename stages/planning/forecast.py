"""Forecast of each stage: memory by phase, tokens, seconds, and whether it fits."""

import multiprocessing
import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

import stages
from stages.engines.vllm_hosting import ENVIRONMENT, MEMORY_SHARE_BESIDE
from stages.models import size
from stages.planning import checkup, memory, pace, workload
from stages.planning.checkup import GIB, Machine, Model
from stages.planning.speed import Rates
from stages.planning.stage import Plan, Stage
from stages.planning.trial import Trial, is_vllm
from stages.planning.trial_loops import ONLINE
from stages.planning.workload import Work
from stages.runtime.process import die_with_parent

AWAKE = ("sampling", "forward pass", "scoring")
"""Phases in which vLLM holds its share of a GPU; in the others it sleeps."""
UNCOUNTED = (RuntimeError, TypeError, AttributeError, IndexError, AssertionError, KeyError)
"""Errors of models that cannot be run on fake tensors."""
Measured = tuple[Mapping[str, int], str | None, str | None]
"""Peak bytes by phase; reason why there are none; reason why the stage cannot work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """Forecast of a stage."""

    stage: Stage
    phases: Mapping[str, int]
    """Phase -> bytes at its peak; empty where no model computes, or none could be measured."""
    unmeasured: str | None
    """Reason why its memory could not be measured."""
    work: Work
    seconds: float
    """0 where there is no rate, or no model computes."""
    source: str
    """Where the rate comes from."""
    problem: str | None
    """Reason why it cannot work."""

    @property
    def largest(self) -> tuple[str, int]:
        """The phase that takes most memory, and its bytes."""
        return max(self.phases.items(), key=lambda item: item[1], default=("", 0))


def forecast_stages(
    stages: Sequence[Stage], model: Model, machine: Machine, plan: Plan, rates: Rates | None
) -> Iterator[Forecast]:
    """Forecast each stage. `rates`: None where there are none."""
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(model.config)
    matrices, parameters = size.count_matrices(empty), size.measure_model(empty)["parameters"]
    recorded = pace.read_rates(parameters)
    trials = [checkup.make_trial(stage, model, machine, plan) for stage in stages]
    measured = measure_trials(stages, trials, machine, parameters)
    for stage, trial, (phases, unmeasured, problem) in zip(stages, trials, measured, strict=True):
        work = workload.forecast_work(stage, plan, matrices)
        seconds, source = 0.0, "-"
        if machine.is_here:
            seconds, source = forecast_seconds(stage, work, trial, recorded, rates)
        forecast = Forecast(
            stage=stage, phases=phases, unmeasured=unmeasured, work=work, seconds=seconds,
            source=source, problem=problem,
        )  # fmt: skip
        phase, peak = forecast.largest
        if peak > machine.room():
            change = checkup.suggest_changes(phase, stage.config)
            too_large = (
                f"{phase} takes {peak / GIB:.1f} GiB of {machine.room() / GIB:.1f} that can be "
                f"used of {machine.name}: {change}"
            )
            forecast = replace(forecast, problem=too_large)
        yield forecast


def forecast_seconds(
    stage: Stage,
    work: Work,
    trial: Trial | None,
    recorded: Mapping[str, tuple[float, float]],
    rates: Rates | None,
) -> tuple[float, str]:
    """Seconds of a stage, and where its rate comes from; an earlier run's goes first."""
    if not work.operations and stage.name in recorded:
        return recorded[stage.name][1], "an earlier run"
    if not work.operations:
        return 0.0, "-"
    if (rate := pace.find_rate(stage.name, recorded)) is not None:
        return work.operations / rate, "an earlier run"
    if rates is None:
        return 0.0, "-"
    is_other_engine = trial is not None and is_vllm(trial.config)
    seconds = rates.predict_seconds(work) + rates.start + is_other_engine * pace.VLLM_START
    return seconds, "measured, without vLLM" if is_other_engine else "measured"


def measure_trials(
    stages: Sequence[Stage], trials: Sequence[Trial | None], machine: Machine, parameters: int
) -> list[Measured]:
    """What `_measure` returns for each stage's trial; equal trials are measured once.

    On every core at the same time, since fake tensors take much of Python's time; where there is a
    GPU in this process alone, as CUDA cannot be used in a fork of a process that uses it. A
    ValueError where memory is missing even for that.
    """
    keys = [
        repr(trial).replace(stage.name, "") for stage, trial in zip(stages, trials, strict=True)
    ]
    distinct = {key: trial for key, trial in zip(keys, trials, strict=True) if trial is not None}
    measure = partial(_measure, machine=machine, parameters=parameters)
    workers = min(len(distinct), len(os.sched_getaffinity(0)))
    if torch.cuda.is_available() or workers < 2:
        results = [*map(measure, distinct.values())]
    else:
        context = multiprocessing.get_context("fork")
        try:
            with ProcessPoolExecutor(workers, context, _begin_worker) as pool:
                results = [*pool.map(measure, distinct.values())]
        except BrokenProcessPool:
            raise ValueError(
                f"expected memory for {workers} trials of stages at the same time, found that one "
                f"was ended, perhaps for want of it. Close other programs, or run the doctor on "
                f"fewer cores: taskset -c 0 python -m stages.doctor"
            ) from None
    measured = dict(zip(distinct, results, strict=True))
    return [measured.get(key, ({}, None, None)) for key in keys]


def _begin_worker() -> None:
    """Bind a forked process to its parent, and torch in it to one thread.

    OpenMP's threads are not in a fork: torch's first product on two of them would wait for ever.
    """
    die_with_parent()
    torch.set_num_threads(1)


def _measure(trial: Trial, machine: Machine, parameters: int) -> Measured:
    """Peak bytes by phase; reason why there are none; reason why it cannot work."""
    try:
        if not is_vllm(trial.config):
            return memory.predict_peaks(trial), None, None
        minimum = minimum_of_vllm(trial, machine, parameters)
        if trial.entry_point not in ONLINE:
            return {"sampling": minimum}, None, None
        return add_vllm(memory.predict_peaks(trial), minimum, machine), None, None
    except ValueError as error:
        return {}, None, str(error)
    except UNCOUNTED as error:
        raised = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
        if isinstance(error, AssertionError) and Path(stages.__file__).parent in raised.parents:
            raise
        return {}, f"{type(error).__name__}: {error}", None


def minimum_of_vllm(trial: Trial, machine: Machine, parameters: int) -> int:
    """Bytes of vLLM's weights and of one row's keys and values: with less it does not start."""
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

    A ValueError where its share is less than the `minimum`.
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
