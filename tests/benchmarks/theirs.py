"""TRL's trainers, with the settings that `setting` and `ours` give our side.

Nothing that costs time and is not the method: no files, no reports, no log of completions, no
recomputation. One micro-batch a step, but in GRPO of the larger model `Model.num_micro`.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from tests.benchmarks import setting
from tests.benchmarks.setting import PROMPTS, ROWS, SAMPLES
from tests.trl_settings import PLAIN

SETTINGS = PLAIN | {
    "learning_rate": setting.RATE,
    "lr_scheduler_type": "constant",
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "optim": "adamw_torch_fused",
    "dataloader_pin_memory": False,
}


class AfterEach(TrainerCallback):
    """Has a function called after each of the trainer's steps."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.function()


def run(method: str, number: int, folder: Path, after: Callable[[], None]) -> None:
    """Take `number` steps and call `after` at the end of each."""
    trainer = _trainer(method, SETTINGS | {"output_dir": str(folder), "max_steps": number})
    trainer.add_callback(AfterEach(after))
    trainer.train()


def _trainer(method: str, settings: dict[str, Any]) -> Any:
    datasets, trl = importlib.import_module("datasets"), importlib.import_module("trl")
    assert trl.__version__ == "1.16.0", trl.__version__
    settings |= {"per_device_train_batch_size": ROWS}
    more: dict[str, Any] = {}
    columns = [[setting.text(ids) for ids in setting.prompts(ROWS)]]
    columns += [  # the end of a completion is added by TRL
        [f" {setting.text(ids[:-1])}" for ids in setting.completions(ROWS, seed)] for seed in (2, 3)
    ]
    match method:
        case "sft":
            name, rows = "SFT", _rows(columns, "prompt", "completion")
        case "dpo":
            name, rows = "DPO", _rows(columns, "prompt", "chosen", "rejected")
            settings |= {"beta": 0.5, "precompute_ref_log_probs": True}
        case _:
            name, more = "GRPO", {"reward_funcs": setting.reward}
            rows = [{"prompt": setting.text(ids)} for ids in setting.prompts(PROMPTS)]
            settings |= {
                "per_device_train_batch_size": PROMPTS * SAMPLES // setting.MODEL.num_micro,
                "gradient_accumulation_steps": setting.MODEL.num_micro,
                "num_generations": SAMPLES,
                "max_completion_length": setting.LENGTH,
                "beta": 0.0,
            }
    return getattr(trl, f"{name}Trainer")(
        model=setting.build(), args=getattr(trl, f"{name}Config")(**settings),
        train_dataset=datasets.Dataset.from_list(rows), processing_class=setting.tokenizer(),
        **more,
    )  # fmt: skip


def _rows(columns: list[list[str]], *names: str) -> list[dict[str, str]]:
    return [dict(zip(names, row, strict=False)) for row in zip(*columns, strict=True)]
