"""vLLM's part of a GPU and of a process, computed without either."""

import pytest
import torch

from stages.engines import vllm_hosting
from stages.engines.vllm_hosting import vllm_memory_share
from stages.planning import checkup
from stages.planning.jobs import Plan
from stages.runtime import gpu_slot

GIB = 2**30
CARD = 80 * GIB


def test_the_share_is_of_what_is_free_and_stays_so():
    # 0.9 of 80 - 20 - 10 = 45 of 80
    assert vllm_memory_share(60 * GIB, CARD, reserved=10 * GIB, part=0.9) == 0.56
    assert vllm_memory_share(CARD, CARD, reserved=0, part=1.0) == 1.0
    with pytest.raises(ValueError, match="of 80 GiB 60 are free"):
        vllm_memory_share(60 * GIB, CARD, reserved=60 * GIB, part=0.9)


def test_vllm_does_not_start_on_a_gpu_that_seeds_share(monkeypatch: pytest.MonkeyPatch):
    from stages.engines import vllm

    monkeypatch.setattr(vllm_hosting, "require_vllm", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert vllm_hosting.SEEDS_PER_GPU == gpu_slot.SEEDS_PER_GPU
    monkeypatch.setenv(gpu_slot.SEEDS_PER_GPU, "3")
    with pytest.raises(ValueError, match="3 seed runs"):
        vllm.start_vllm("nowhere", dtype="float32", max_model_len=8)
    for engine, number in (("vllm", 1), ("transformers", 0)):  # of problems that doctor reports
        plan = Plan(content={"engine": engine}, presets={}, rows={}, data=None)  # pyright: ignore
        problems = checkup.find_software_problems(plan, {"vllm": "0.32.0"})
        assert len([text for text in problems if "3 seed runs" in text]) == number
    monkeypatch.setenv(gpu_slot.SEEDS_PER_GPU, "1")
    vllm_hosting.check_gpu_is_not_shared()
    monkeypatch.delenv(gpu_slot.SEEDS_PER_GPU)
    vllm_hosting.check_gpu_is_not_shared()


def test_vllm_computes_without_the_autocast_and_the_deterministic_mode_of_a_trainer():
    torch.set_deterministic_debug_mode("error")
    try:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        ones = torch.ones(2, 2, device=device)
        with torch.autocast(device, torch.bfloat16), vllm_hosting.vllm_precision():
            assert torch.get_deterministic_debug_mode() == 0
            assert (ones @ ones).dtype == torch.float32
        assert torch.get_deterministic_debug_mode() == 2
    finally:
        torch.set_deterministic_debug_mode("default")


@pytest.mark.parametrize(("rounding", "is_seen"), [("pinned", False), ("native", True)])
def test_pinned_instructions_hide_amx_from_vllm(monkeypatch, rounding, is_seen):
    """Its matrix products would call kernels of oneDNN that the pinned ones exclude, and abort."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.setattr(vllm_hosting.stages, "ROUNDING", rounding)
    monkeypatch.setattr(vllm_hosting, "ENVIRONMENT", {})
    vllm_hosting.prepare_process()
    assert torch.cpu._is_amx_tile_supported() is is_seen
