"""What is expected of each stage: memory by phase, tokens and seconds; and what will not fit."""

import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

import stages
from stages.engines.vllm_hosting import ENVIRONMENT, MEMORY_SHARE_BESIDE
from stages.models import size
from stages.planning import checkup, memory, pace, workload
from stages.planning.checkup import GIB, Machine, Model
from stages.planning.stage import Plan, Stage
from stages.planning.trial import Trial, is_vllm
from stages.planning.trial_loops import ONLINE
from stages.planning.workload import Work

AWAKE = ("sampling", "reading", "scoring")
"""Phases in which vLLM holds its share of a GPU; in the others it sleeps."""
UNCOUNTED = (RuntimeError, TypeError, AttributeError, IndexError, AssertionError, KeyError)
"""What a model that cannot be run on fake tensors raises."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """Of one stage."""

    stage: Stage
    phases: Mapping[str, int]
    """Phase -> bytes at its peak; empty where no model computes, or none could be measured."""
    unmeasured: str | None
    """Why its memory could not be measured."""
    work: Work
    seconds: float
    known: bool
    """Whether an earlier run told the rate."""
    problem: str | None
    """Why it cannot work."""

    @property
    def largest(self) -> tuple[str, int]:
        """The phase that takes the most, and its bytes."""
        return max(self.phases.items(), key=lambda one: one[1], default=("", 0))


def all_of(
    stages: Iterable[Stage], model: Model, machine: Machine, plan: Plan
) -> Iterator[Forecast]:
    """A forecast of each stage; those that are alike are measured once."""
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(model.config)
    matrices, parameters = size.count_matrices(empty), size.measure_model(empty)["parameters"]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    here = pace.product_rate(plan.content["compute"]["dtype"], device)
    recorded, measured = pace.recorded(parameters), {}
    for stage in stages:
        trial = checkup.trial(stage, model, machine, plan)
        phases, unmeasured, problem = {}, None, None
        if trial is not None:
            key = repr(trial).replace(stage.name, "")
            if key not in measured:
                measured[key] = _measure(trial, machine, parameters)
            phases, unmeasured, problem = measured[key]
        work = workload.expect(stage, plan, matrices)
        rate, known = pace.rate(stage.name, stage.entry_point, recorded, here)
        seconds = work.operations / rate
        if trial is not None and not known:
            seconds += pace.VLLM_START if is_vllm(trial.config) else pace.START
        if not work.operations and stage.name in recorded:
            seconds, known = recorded[stage.name][1], True
        if not machine.is_here:
            seconds, known = 0.0, False
        found = Forecast(
            stage=stage, phases=phases, unmeasured=unmeasured, work=work, seconds=seconds,
            known=known, problem=problem,
        )  # fmt: skip
        phase, taken = found.largest
        if taken > machine.room():
            change = checkup.remedies(phase, stage.config)
            problem = (
                f"{phase} takes {taken / GIB:.1f} GiB of {machine.room() / GIB:.1f} that can be "
                f"used of {machine.name}: {change}"
            )
        yield replace(found, problem=problem)


def _measure(
    trial: Trial, machine: Machine, parameters: int
) -> tuple[Mapping[str, int], str | None, str | None]:
    """Peaks by phase; why there are none; why it cannot work."""
    try:
        if not is_vllm(trial.config):
            return memory.predict(trial), None, None
        least = least_of_vllm(trial, machine, parameters)
        if trial.entry_point not in ONLINE:
            return {"sampling": least}, None, None
        return with_vllm(memory.predict(trial), least, machine), None, None
    except ValueError as error:
        return {}, None, str(error)
    except UNCOUNTED as error:
        raised = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
        if isinstance(error, AssertionError) and Path(stages.__file__).parent in raised.parents:
            raise
        return {}, f"{type(error).__name__}: {error}", None


def least_of_vllm(trial: Trial, machine: Machine, parameters: int) -> int:
    """Bytes of its weights and of one row's keys and values: with less it does not start."""
    width = 2 if trial.config.compute.dtype == "bfloat16" else 4
    if not machine.is_gpu:
        return width * parameters + int(ENVIRONMENT["VLLM_CPU_KVCACHE_SPACE"]) * GIB
    text = trial.base.get_text_config(decoder=True)
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    each = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    kept = 2 * text.num_hidden_layers * heads * each * (trial.prompt + trial.completion)
    return width * (parameters + kept)


def with_vllm(phases: Mapping[str, int], least: int, machine: Machine) -> dict[str, int]:
    """A trainer's `phases` with the share of the GPU that vLLM has beside it; a CPU's never sleeps.

    A ValueError where its share is less than the `least`.
    """
    if not machine.is_gpu:
        return {phase: held + least for phase, held in phases.items()}
    held = phases["sampling"]
    share = round(MEMORY_SHARE_BESIDE * max(0, machine.bytes - held))
    if share < least:
        raise ValueError(
            f"vLLM would have {share / GIB:.1f} GiB of {machine.name} beside {held / GIB:.1f} that "
            f"the trainer holds, and needs {least / GIB:.1f}: lora.rank: 16, a smaller model, or "
            f"engine: transformers"
        )
    return {phase: size + share * (phase in AWAKE) for phase, size in phases.items()}
