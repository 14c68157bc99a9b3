"""Every process of the tests computes with the pinned instructions, as stages do; and repositories
in which the whole pipeline runs."""

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pipeline_copy import Edit, PipelineCopy

from stages.models import device

# Before any test computes: MKL chooses its instructions once in the life of a process.
device.pin_instructions()
# A shell has its background jobs ignore Ctrl-C, and with them all that they start: not here.
signal.signal(signal.SIGINT, signal.default_int_handler)


def shrink(params: dict[str, Any], presets: dict[str, Any]) -> None:
    """A model and data so small that a stage mostly starts up, and two seeds."""
    params["seeds"] = [0, 1]
    params["model"]["tiny"] |= {"hidden_size": 64, "num_layers": 2, "num_heads": 2}
    params["model"]["tiny"] |= {"intermediate_size": 128}
    params["data"]["source"] |= {"num_problems": 900, "max_value": 20}
    params["data"]["shares"] |= {"preference": 0.1, "dev": 0.1, "test": 0.05}
    # So few demonstrations have to teach to solve, or no solution is right.
    mixture = {"judge": 0.1, "critique": 0.05, "revise": 0.1, "max_prompt_tokens": "auto"}
    params["data"]["mixture"] = mixture
    params["sft"] |= {"num_epochs": 6, "batch_size": 16}
    params["sft"]["optim"]["learning_rate"] = 3e-3
    for split in params["sampling"].values():
        split["num_samples"] = 8
    params["temperatures"] = {"tried": [0.5], "num_samples": 1}
    params["evaluation"] |= {"ks": [1, 2], "num_draws": 16, "num_bootstrap": 200}
    params["evaluation"]["max_cut_share"] = 1.0  # such models do not always learn to stop
    params["ppo"] |= {"num_steps": 2, "prompts_per_step": 8}
    params["grpo"] |= {"num_steps": 2, "prompts_per_step": 8, "group_size": 4}
    for method in ("dpo", "ppo", "grpo"):
        params[method]["num_checkpoints"] = 1
    for preset in presets.values():
        if preset.get("num_minibatches", 0) > params["grpo"]["prompts_per_step"]:
            preset["num_minibatches"] = params["grpo"]["prompts_per_step"]
    presets["cold_start"]["num_demonstrations"] = 100
    presets["judge"]["injection_pairs"] = 4
    presets["completions"] |= {"num_problems": 20, "num_completions": 2}
    presets["completions"]["audit"]["num_bootstrap"] = 200


@pytest.fixture
def torch_settings() -> Iterator[None]:
    """Torch's number of threads and deterministic mode, which stages set, are restored."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of `SMALL_DISK` bytes of the test's module."""
    folder = tmp_path / "small"
    folder.mkdir()
    size = f"size={request.module.SMALL_DISK}"
    mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("a small file system can only be mounted by root, outside a closed container")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="session")
def pipeline_copy(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Edit], PipelineCopy]:
    """Makes a small copy of the repository, further changed by the function it is given."""

    def make(change: Edit) -> PipelineCopy:
        path: Path = tmp_path_factory.mktemp("copy")
        copy = PipelineCopy(path, shrink)
        copy.change(change)
        return copy

    return make
