"""`PPOTrainer` and `PRMTrainer` of TRL 1.9.2 in a process of its own: later versions have neither.

`run` starts this module with TRL 1.9.2 first on the path; it writes to a folder what the trainer
computes.
"""

import functools
import inspect
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from parity import reference
from parity.reference import text, tokenizer
from parity.rows import Weights
from safetensors.torch import load_file, save_file
from tiny_checkpoints import CPU, VOCAB, checkpoint, compute, gradients, load, random_ids
from tiny_rollouts import make_prompts
from transformers import AutoModelForTokenClassification, PreTrainedModel

from stages.models import policy

TRL, FOLDER, ROOT = "1.9.2", os.environ.get("TRL_1_9", ""), Path(__file__).parents[2]
needs_trl_1_9 = pytest.mark.skipif(
    not FOLDER,
    reason="TRL_1_9 names no folder: pip install --no-deps --target FOLDER "
    "-r .ci/parity-trl-1.9-requirements.txt",
)
NUM_PROMPTS = 8
PADDING = VOCAB
"""Not a token of the model's: TRL takes a padding token that is sampled as the end."""
TEMPERATURE, KL_COEF, GAMMA, LAM = 0.7, 0.05, 0.98, 0.9
CLIP, CLIP_VALUE, VALUE_WEIGHT = 0.2, 0.2, 0.1
# Two passes over one rollout batch in one micro-batch: the second is off policy.
PPO = {
    "per_device_train_batch_size": NUM_PROMPTS, "num_mini_batches": 1, "num_ppo_epochs": 2,
    "total_episodes": NUM_PROMPTS, "local_rollout_forward_batch_size": NUM_PROMPTS,
    "num_sample_generations": 0, "response_length": 24, "learning_rate": 3e-3,
    "temperature": TEMPERATURE, "kl_coef": KL_COEF, "gamma": GAMMA, "lam": LAM, "cliprange": CLIP,
    "cliprange_value": CLIP_VALUE, "vf_coef": VALUE_WEIGHT,
}  # fmt: skip
# The names of PPOTrainer's local variables that are compared.
STATE = (
    "queries", "responses", "logprobs", "ref_logprobs", "values", "scores", "rewards",
    "advantages", "returns", "padding_mask", "padding_mask_p1", "loss", "pg_loss", "vf_loss",
)  # fmt: skip
SEPARATOR = [30, 31]
"""Two tokens, of which the last is the one with the label."""
PRM = {"per_device_train_batch_size": 4, "max_steps": 1}
TENSORS = ("input_ids", "attention_mask", "labels")
"""Those of a batch of PRMTrainer that are compared."""


def run(folder: Path, *words: str) -> None:
    path = os.pathsep.join([FOLDER, str(ROOT / "tests"), str(ROOT)])
    subprocess.run(
        [sys.executable, "-m", "parity.trl_1_9", str(folder), *words],
        env=os.environ | {"PYTHONPATH": path, "DO_NOT_TRACK": "1"}, check=True, timeout=300,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution:
    prompt_ids: list[int]
    steps: list[list[int]]
    labels: list[int]

    def completion_ids(self) -> list[int]:
        return [token for step in self.steps for token in [*step, *SEPARATOR]]

    def ends(self) -> list[int]:
        """The place of each step's last token in the completion."""
        lengths = torch.tensor([len(step) + len(SEPARATOR) for step in self.steps])
        return (lengths.cumsum(0) - 1).tolist()


@functools.cache
def solutions() -> Sequence[Solution]:
    """Four, of 1 to 4 steps; both labels occur in one solution."""
    generator = torch.Generator().manual_seed(11)
    return [
        Solution(
            prompt_ids=random_ids(generator, 3 + i),
            steps=[random_ids(generator, 1 + (i + k) % 3) for k in range(1 + i)],
            labels=[int((i + k) % 3 > 0) for k in range(1 + i)],
        )
        for i in range(4)
    ]


def step_model() -> PreTrainedModel:
    """The tiny Llama under a head of two scores, all dropout off."""
    new = frozenset({"score.weight", "score.bias"})
    result = policy.load_pretrained(
        AutoModelForTokenClassification, checkpoint("llama"), new=new, num_labels=2
    )
    generator = torch.Generator().manual_seed(5)
    for name in sorted(new):
        parameter = result.get_parameter(name)
        parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)
    return policy.prepare_model(result, compute(), CPU)


def save(path: Path, **groups: Weights) -> None:
    tensors = {f"{group}/{name}": torch.as_tensor(value)
               for group, values in groups.items() for name, value in values.items()}  # fmt: skip
    # Copies: tied weights share memory, which the format refuses.
    save_file({name: value.detach().clone().contiguous() for name, value in tensors.items()}, path)


def read(path: Path, *groups: str) -> list[Weights]:
    tensors = load_file(path)
    return [{name.removeprefix(f"{group}/"): value for name, value in tensors.items()
             if name.startswith(f"{group}/")} for group in groups]  # fmt: skip


def train_ppo(folder: Path, stop_token: str | None) -> None:
    """After each backward pass, write the trainer's own variables, its weights and gradients."""
    from datasets import Dataset
    from transformers import DataCollatorWithPadding
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    characters = tokenizer(PADDING)
    characters.padding_side = "left"
    trainer = PPOTrainer(
        args=PPOConfig(**reference.arguments(folder, **PPO, stop_token=stop_token)),
        processing_class=characters, model=load("llama", 0), ref_model=load("llama", 1),
        reward_model=reference.scalar_model(2), value_model=reference.scalar_model(3),
        train_dataset=Dataset.from_list(
            [{"input_ids": list(p.prompt_ids)} for p in make_prompts(NUM_PROMPTS)]
        ),
        data_collator=DataCollatorWithPadding(characters),
    )  # fmt: skip
    backward, losses = trainer.accelerator.backward, []

    def spy(loss: torch.Tensor) -> None:
        names = inspect.currentframe().f_back.f_locals
        backward(loss)
        model, path = trainer.model, folder / f"{len(losses)}.safetensors"
        save(path, state={name: names[name] for name in STATE}, weights=model.state_dict(),
             gradients=gradients(model))  # fmt: skip
        losses.append(loss)

    trainer.accelerator.backward = spy
    trainer.train()


def train_prm(folder: Path) -> None:
    from datasets import Dataset
    from trl.experimental.prm import PRMConfig, PRMTrainer

    model = step_model()
    # As token classifiers come: TRL's `disable_dropout`, which is on, must switch it off.
    model.dropout.p = 0.1
    settings: dict[str, Any] = PRM | {"step_separator": text(SEPARATOR)}
    rows = [{"prompt": text(row.prompt_ids), "completions": [text(step) for step in row.steps],
             "labels": [bool(label) for label in row.labels]} for row in solutions()]  # fmt: skip
    trainer = PRMTrainer(model=model, args=PRMConfig(**reference.arguments(folder, **settings)),
                         train_dataset=Dataset.from_list(rows),
                         processing_class=tokenizer())  # fmt: skip
    assert model.dropout.p == 0
    (step,) = reference.run(trainer)
    save(
        folder / "prm.safetensors",
        loss={"": torch.tensor(step.computed.loss, dtype=torch.float64)}, weights=step.weights,
        gradients=step.computed.gradients, batch={name: step.batches[0][name] for name in TENSORS},
    )  # fmt: skip


if __name__ == "__main__":
    import trl

    assert trl.__version__ == TRL, trl.__version__
    if sys.argv[2] == "prm":
        train_prm(Path(sys.argv[1]))
    else:
        train_ppo(Path(sys.argv[1]), None if sys.argv[2] == "none" else sys.argv[2])
