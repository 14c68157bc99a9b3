"""vLLM beside a trainer worked by hand, and what cannot be measured told from what cannot work."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from step_memory import BIGGER, EMBEDDED, Measured
from tiny_checkpoints import compute
from transformers import LlamaConfig

from stages.planning import forecast, memory, pace
from stages.planning.checkup import GIB, Machine
from stages.planning.speed import Rates
from stages.planning.trial import Trial
from stages.planning.workload import Work

GPU = Machine(name="a GPU", bytes=80 * GIB, is_gpu=True)
CPU = Machine(name="a CPU", bytes=10 * GIB, is_gpu=False)
BASE = LlamaConfig(
    hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=96, vocab_size=50,
)  # fmt: skip
PHASES = {"update": 50 * GIB, "sampling": 30 * GIB, "forward pass": 35 * GIB}


def trial(entry_point="sample", **changes):
    config = SimpleNamespace(compute=compute(**changes), engine="vllm")
    return Trial(
        entry_point=entry_point, config=config, base=BASE, prompt=70, completion=30, samples=4
    )


def test_vllm_takes_its_share_of_what_the_trainer_leaves_while_it_is_awake():
    # Six tenths of the 50 GiB that are free beside policy, reference and moments.
    result = forecast.add_vllm(PHASES, 20 * GIB, GPU)
    assert result == {"update": 50 * GIB, "sampling": 60 * GIB, "forward pass": 65 * GIB}


def test_a_share_smaller_than_its_weights_cannot_work():
    with pytest.raises(ValueError, match=r"30.0 GiB of a GPU beside 30.0 .* needs 31.0"):
        forecast.add_vllm(PHASES, 31 * GIB, GPU)
    with pytest.raises(ValueError, match=r"0.0 GiB"):
        forecast.add_vllm({"sampling": 90 * GIB}, GIB, GPU)


def test_on_a_cpu_it_does_not_sleep():
    assert forecast.add_vllm({"update": 5, "sampling": 3}, 2, CPU) == {"update": 7, "sampling": 5}


def test_the_least_is_weights_and_one_row():
    # Two matrices of 2 heads of 16 at each of 3 layers and 100 positions; bfloat16.
    expected = 2 * (1000 + 2 * 3 * 2 * 16 * 100)
    assert forecast.minimum_of_vllm(trial(dtype="bfloat16"), GPU, 1000) == expected
    assert forecast.minimum_of_vllm(trial(), CPU, 1000) == 4 * 1000 + GIB


def test_a_stage_that_only_samples_is_not_run_for_vllm():
    phases, unmeasured, problem = forecast._measure(trial(), GPU, 1000)
    assert phases == {"sampling": forecast.minimum_of_vllm(trial(), GPU, 1000)}
    assert (unmeasured, problem) == (None, None)


def test_an_earlier_run_goes_before_measured_rates():
    work = Work(tokens=1, trained=600, forward=100, sampled=30)
    rates = Rates(trained=60.0, forward=100.0, sampled=10.0, step=0.0, start=5.0)
    stage = SimpleNamespace(name="train@sft")

    def seconds(recorded, work=work, trial=None, rates=rates):
        return forecast.forecast_seconds(stage, work, trial, recorded, rates)

    assert seconds({"train@dpo": (73.0, 1.0)}) == (730 / 73, "an earlier run")
    # 600 / 60 and 100 / 100 and 30 / 10, and the start.
    assert seconds({}) == (10 + 1 + 3 + 5, "measured")
    assert seconds({}, trial=trial()) == (19 + pace.VLLM_START, "measured, without vLLM")
    assert seconds({}, rates=None) == (0.0, "-")
    nothing = Work(tokens=0)
    assert seconds({}, work=nothing) == (0.0, "-")
    assert seconds({"train@sft": (0.0, 8.0)}, work=nothing) == (8.0, "an earlier run")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry_point", "changes"),
    [("train_grpo", {}), ("train_ppo", {"preset": {"value_init": "policy"}})],
)
def test_a_trainer_with_vllm_is_measured_without_the_projects_own_sampler(entry_point, changes):
    measured = Measured(entry_point, EMBEDDED, rows=2, **changes)
    with_sampler = memory.predict_peaks(measured.trial())
    config = measured.config()
    config.engine = "vllm"
    base = measured.trial()
    with_vllm = Trial(
        entry_point=entry_point, config=config, base=base.base, prompt=base.prompt,
        completion=base.completion, samples=base.samples, scorers=base.scorers,
    )  # fmt: skip
    result = memory.predict_peaks(with_vllm)
    held = sum(
        p.numel() * p.element_size() for m in measured.models.values() for p in m.parameters()
    )
    assert held < result["sampling"] < with_sampler["sampling"], "without the cache of a sampler"
    assert result["sampling"] < result["forward pass"] < result["update"]
    assert result["update"] == with_sampler["update"]


@pytest.mark.slow
def test_trials_end_after_torch_has_computed_on_two_threads():
    """OpenMP's threads are not in a fork: the first product on two of them would wait for ever."""
    code = """
import torch
from types import SimpleNamespace
from step_memory import EMBEDDED, Measured
from stages.planning import forecast
from stages.planning.checkup import GIB, Machine

torch.set_num_threads(2)
torch.ones(2000, 2000).tril()
trials = [Measured(name, EMBEDDED, rows=40).trial() for name in ("train_sft", "train_dpo")]
stages = [SimpleNamespace(name=trial.entry_point) for trial in trials]
cpu = Machine(name="a CPU", bytes=10 * GIB, is_gpu=False)
print(*[all(phases.values()) for phases, _, _ in forecast.measure_trials(stages, trials, cpu, 9)])
print(torch.get_num_threads())
"""
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = os.environ | {"PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
    )
    assert result.stdout == "True True\n2\n", result.stderr


def test_what_fake_tensors_cannot_run_is_no_problem_of_the_users(monkeypatch):
    def raising(error):
        def predict(_trial):
            raise error

        monkeypatch.setattr(memory, "predict_peaks", predict)
        return forecast._measure(Measured("train_sft", BIGGER, rows=1).trial(), GPU, 1000)

    assert raising(TypeError("no such operation")) == ({}, "TypeError: no such operation", None)
    # Raised in no file of stages/.
    assert raising(AssertionError("theirs")) == ({}, "AssertionError: theirs", None)
    assert raising(ValueError("take another model")) == ({}, None, "take another model")


def test_an_assertion_of_ours_is_not_swallowed():
    with pytest.raises(AssertionError):
        forecast._measure(
            Trial(
                entry_point="train_sft", config=Measured("train_sft", EMBEDDED).config(),
                base=BASE, prompt=0, completion=3, samples=1,
            ),
            GPU, 1000,
        )  # fmt: skip
