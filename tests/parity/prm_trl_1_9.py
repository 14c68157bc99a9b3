"""What `PRMTrainer` of TRL 1.9.2 computes in one step, written to a folder.

Run by test_prm.py in a process of its own, with TRL 1.9.2 first on the path: later versions
have no process reward model.
"""

import sys
from pathlib import Path

import torch
from datasets import Dataset
from parity import reference
from parity.characters import text, tokenizer
from parity.reference import ReferenceStep
from parity.steps import CASES, SEPARATOR, TENSORS, solutions, step_model
from safetensors.torch import save_file
from trl import __version__
from trl.experimental.prm import PRMConfig, PRMTrainer


def main(folder: Path) -> None:
    for name, settings in CASES.items():
        save(folder / f"{name}.safetensors", step(folder, **settings))


def step(folder: Path, **settings: object) -> ReferenceStep:
    model = step_model()
    # As token classifiers come: TRL's `disable_dropout`, which is on, must switch it off.
    model.dropout.p = 0.1
    trainer = PRMTrainer(
        model=model,
        args=PRMConfig(
            **reference.arguments(folder, max_steps=1, step_separator=text(SEPARATOR), **settings)
        ),
        train_dataset=Dataset.from_list([solution.as_text() for solution in solutions()]),
        processing_class=tokenizer(),
    )
    assert model.dropout.p == 0
    (result,) = reference.run(trainer)
    return result


def save(path: Path, found: ReferenceStep) -> None:
    tensors = {"loss": torch.tensor(found.computed.loss, dtype=torch.float64)}
    tensors |= {f"weights/{name}": value for name, value in found.weights.items()}
    tensors |= {f"gradients/{name}": value for name, value in found.computed.gradients.items()}
    for number, batch in enumerate(found.batches):
        tensors |= {f"batches/{number}/{name}": batch[name] for name in TENSORS}
    save_file({name: value.contiguous() for name, value in tensors.items()}, path)


if __name__ == "__main__":
    assert __version__ == "1.9.2", __version__
    main(Path(sys.argv[1]))
