"""vLLM's part of a GPU and of a process, computed without either."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from vllm_installed import needs_vllm

import stages
from stages.engines import vllm_hosting
from stages.engines.vllm_hosting import MEMORY_SHARE_ALONE, MEMORY_SHARE_BESIDE, vllm_memory_share
from stages.planning import checkup
from stages.planning.jobs import Plan
from stages.runtime import gpu_slot

GIB = 2**30
CARD = 80 * GIB
CONTEXT = 1 * GIB
"""What CUDA takes of a card in a process that computes."""
MODEL = 4 * 1_540_000_000
"""Weights of a model of 1.5 billion parameters, in float32."""
STARTS = {
    # file: models beside vLLM when it starts, and their optimizers' later (in `MODEL`)
    "stages/sample.py": (0, 0),
    "stages/play.py": (0, 0),
    "stages/label_feedback.py": (0, 0),
    "stages/steps_completions.py": (0, 0),
    "stages/train_rl.py grpo": (3, 2),  # policy, reference, reward model; moments of one
    "stages/train_rl.py ppo": (4, 4),  # and the value model; moments of two
    "studies/probes.py": (0, 0),
    "studies/search.py": (1, 0),  # the process model
    "studies/overoptimization.py": (4, 0),  # a reward model and an ensemble of three
}
ROOT = Path(stages.__file__).parents[1]


def test_every_stage_that_starts_vllm_is_a_row():
    starts = re.compile(r"(config\.load_(sampler|judge)|loading\.make_policy_sampler)\b")
    sources = [*(ROOT / "stages").rglob("*.py"), *(ROOT / "studies").glob("*.py")]
    result = [path for path in sources if starts.search(path.read_text("utf-8"))]
    assert {path.relative_to(ROOT).as_posix() for path in result} == {
        name.split()[0] for name in STARTS
    }


@needs_vllm
@pytest.mark.vllm
@pytest.mark.parametrize("name", STARTS)
def test_vllm_starts_beside_the_models_of_each_stage_and_leaves_them_their_room(name: str):
    vllm_hosting.prepare_process()
    from vllm.v1.worker.utils import request_memory  # pyright: ignore[reportMissingImports]

    number, later = STARTS[name]
    free, reserved = CARD - CONTEXT - number * MODEL, later * MODEL

    def request(share: float) -> int:
        card = SimpleNamespace(total_memory=CARD, free_memory=free, device_="cuda:0")
        return request_memory(card, SimpleNamespace(gpu_memory_utilization=share))

    part = (
        MEMORY_SHARE_BESIDE
        if "MEMORY_SHARE_BESIDE" in (ROOT / name.split(maxsplit=1)[0]).read_text("utf-8")
        else MEMORY_SHARE_ALONE
    )
    assert (part == MEMORY_SHARE_BESIDE) == (
        name in ("studies/search.py", "studies/overoptimization.py")
    )
    share_of_vllm = request(vllm_memory_share(free, CARD, reserved=reserved, part=part))
    # The weights in float32, the cache of 64 sequences of 1024 tokens, and what others compute.
    assert share_of_vllm > MODEL + 64 * 1024 * 28_672
    assert free - share_of_vllm - reserved > (
        0.05 if part == MEMORY_SHARE_ALONE else 0.3
    ) * CARD * (1 - number / 14)
    if number:
        with pytest.raises(ValueError, match="less than desired GPU memory utilization"):
            request(0.92)


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
