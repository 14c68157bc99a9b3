"""TRL's trainers, with the settings that `setting` and `ours` give our side.

Nothing that costs time and is not the method: no files, no reports, no log of completions, no
recomputation. One micro-batch a step, but in GRPO of the larger model `Model.num_micro`.
"""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel, TrainerCallback

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
    if method == "sampling":
        for _ in _sampling(number):
            after()
        return
    trainer = _trainer(method, number, SETTINGS | {"output_dir": str(folder)})
    trainer.add_callback(AfterEach(after))
    trainer.train()


def _trainer(method: str, number: int, plain: dict[str, Any]) -> Any:
    from datasets import Dataset

    prompts = [setting.text(ids) for ids in setting.prompts(ROWS)]
    chosen, rejected = (
        [" " + setting.text(ids) for ids in setting.completions(ROWS, seed)] for seed in (2, 3)
    )
    plain |= {"per_device_train_batch_size": ROWS, "max_steps": number}
    words = setting.tokenizer()
    match method:
        case "sft":
            rows = {
                "prompt": prompts,
                "completion": [item.removesuffix(" <eos>") for item in chosen],
            }
            return _make("SFT", plain, rows, words, setting.build(), Dataset)
        case "dpo":
            rows = _pairs(prompts, chosen, rejected)
            plain |= {"beta": 0.5, "precompute_ref_log_probs": True}
            return _make("DPO", plain, rows, words, setting.build(), Dataset)
        case "reward":
            rows = _pairs(prompts, chosen, rejected)
            return _make("Reward", plain, rows, words, setting.build_scalar(0), Dataset)
        case _:
            plain |= {
                "per_device_train_batch_size": PROMPTS * SAMPLES // setting.MODEL.num_micro,
                "gradient_accumulation_steps": setting.MODEL.num_micro,
                "num_generations": SAMPLES,
                "max_completion_length": setting.LENGTH,
                "beta": setting.KL_COEF if method == "grpo_kl" else 0.0,
            }
            rows = {"prompt": [setting.text(ids) for ids in setting.prompts(PROMPTS)]}
            return _make(
                "GRPO", plain, rows, words, setting.build(), Dataset, reward_funcs=setting.reward
            )


def _pairs(*columns: list[str]) -> dict[str, list[str]]:
    prompts, *sides = columns
    cut = [[item.removesuffix(" <eos>") for item in side] for side in sides]
    return {"prompt": prompts, "chosen": cut[0], "rejected": cut[1]}


def _make(
    name: str, plain: dict[str, Any], rows: dict[str, list[str]], words: Any,
    model: PreTrainedModel, kind: Any, **more: Any,
) -> Any:  # fmt: skip
    trl = importlib.import_module("trl")
    assert trl.__version__ == "1.16.0", trl.__version__
    return getattr(trl, f"{name}Trainer")(
        model=model,
        args=getattr(trl, f"{name}Config")(**plain),
        train_dataset=kind.from_dict(rows),
        processing_class=words,
        **more,
    )


def _sampling(number: int) -> Iterator[None]:
    """transformers' `generate`, as TRL's trainers call it: every prompt once a completion."""
    model, words = setting.build().eval(), setting.tokenizer()
    words.padding_side = "left"
    rows = [{"input_ids": ids} for ids in setting.prompts(PROMPTS) for _ in range(SAMPLES)]
    inputs = words.pad(rows, return_tensors="pt")
    config = GenerationConfig(
        max_new_tokens=setting.LENGTH, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
        pad_token_id=setting.PAD, eos_token_id=setting.EOS,
    )  # fmt: skip
    for _ in range(number):
        with torch.no_grad():
            model.generate(**inputs, generation_config=config)
        yield
