"""What `PPOTrainer` of TRL 1.9.2 computes, written to a folder.

Run by test_ppo.py in a process of its own, with TRL 1.9.2 first on the path: later versions
have no PPO.
"""

import inspect
import sys
from pathlib import Path

import torch
from datasets import Dataset
from parity import reference
from parity.characters import tokenizer
from parity.ppo_settings import NUM_PROMPTS, PADDING, SETTINGS, STATE
from safetensors.torch import save_file
from tiny_checkpoints import gradients, load
from tiny_rollouts import make_prompts
from transformers import DataCollatorWithPadding, PreTrainedModel
from trl import __version__
from trl.experimental.ppo import PPOConfig, PPOTrainer


def main(folder: Path, stop_token: str | None) -> None:
    characters = tokenizer(PADDING)
    characters.padding_side = "left"
    trainer = PPOTrainer(
        args=PPOConfig(**reference.arguments(folder, **SETTINGS, stop_token=stop_token)),
        processing_class=characters,
        model=load("llama", 0),
        ref_model=load("llama", 1),
        reward_model=reference.scalar_model(2),
        value_model=reference.scalar_model(3),
        train_dataset=Dataset.from_list(
            [{"input_ids": list(p.prompt_ids)} for p in make_prompts(NUM_PROMPTS)]
        ),
        data_collator=DataCollatorWithPadding(characters),
    )
    watch(trainer, folder)
    trainer.train()


def watch(trainer: PPOTrainer, folder: Path) -> None:
    """After each backward pass, write the trainer's own variables, its weights and gradients."""
    backward = trainer.accelerator.backward
    count = 0

    def spy(loss: torch.Tensor) -> None:
        nonlocal count
        names = inspect.currentframe().f_back.f_locals
        backward(loss)
        save(folder / f"{count}.safetensors", names, trainer.model)
        count += 1

    trainer.accelerator.backward = spy


def save(path: Path, names: dict[str, object], model: PreTrainedModel) -> None:
    tensors = {f"state/{name}": torch.as_tensor(names[name]) for name in STATE}
    tensors |= {f"weights/{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"gradients/{name}": value for name, value in gradients(model).items()}
    # Copies: tied weights share memory, which the format refuses.
    save_file({name: value.detach().clone().contiguous() for name, value in tensors.items()}, path)


if __name__ == "__main__":
    assert __version__ == "1.9.2", __version__
    main(Path(sys.argv[1]), None if sys.argv[2] == "none" else sys.argv[2])
