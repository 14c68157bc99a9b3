"""A run of the pipeline as studies find it: random models and made-up completions, in a folder."""

import json
from pathlib import Path
from typing import Any

import torch
from ruamel.yaml import YAML
from tiny_checkpoints import COMPUTE, CPU, compute

from stages import rows
from stages.config import read_yaml
from stages.models import model_tokenizer as tokenizers
from stages.models import policy, process_head, scalar_head
from stages.models.row_policy import TinyConfig, build_tiny
from stages.records import lines
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.records.temperatures import SampledFile
from stages.rewards import reward_file
from stages.rows import DATA, PROMPTS
from studies.study import STUDY_PARAMS

ROOT = Path(__file__).parents[1]
CASES = read_yaml(ROOT / "tests/studies/cases.yaml")
"""Tables of the tests of studies."""
SEEDS = [0, 1]
TINY = {
    "hidden_size": 64, "num_layers": 1, "num_heads": 2, "intermediate_size": 16,
    "max_length": 96, "vocab_size": 700,
}  # fmt: skip
ANSWERS = ("1 + 8 = 9\n#### 9", "1 + 7 = 8\n#### 8", "#### 9", "3\n3\n#### 3")
"""Right, wrong, right, wrong."""


def problem(name: str, answer: str = "7", **changes: Any) -> Prompt:
    """A problem whose question and prompt are of its name."""
    values = {"task": "solve", "question": f"{name}?", "prompt": f"{name}?\n", "prompt_ids": [1]}
    return Prompt(id=name, answer=answer, **values | changes)


def completion(name: str, index: int, text: str, ids: list[int], **changes: Any) -> Completion:
    """A finished completion of this text and these tokens."""
    values = {"logprob_sum": 0.0, "finish_reason": "stop", "seed": 0}
    return Completion(id=name, index=index, completion=text, completion_ids=ids, **values | changes)


def words():
    return tokenizers.train_tokenizer(["1 + 2 = 3\n"], TINY["vocab_size"])


def prompts(split: str, number: int) -> list[Prompt]:
    tokenizer, result = words(), []
    for n in range(number):
        ids, question = tokenizer(f"{n} is\n")["input_ids"], f"{n} + {9 - n % 9}?"
        changes = {"question": question, "prompt": f"{n} is\n", "prompt_ids": ids}
        result.append(problem(f"{split}{n}", "9", **changes))
    return result


def completions(problems: list[Prompt], number: int) -> list[Completion]:
    """Of each problem the answers in turn, from another one on."""
    tokenizer, result = words(), []
    for place, prompt in enumerate(problems):
        for index in range(number):
            text = ANSWERS[(index + place) % len(ANSWERS)]
            ids = [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
            logprob_sum = -1.0 - index / 8
            result.append(completion(prompt.id, index, text, ids, logprob_sum=logprob_sum))
    return result


def make(study: str, settings: dict[str, Any], *, policies: tuple[str, ...] = ("sft",)) -> None:
    """params.yaml, the study's own, prompts, and of each seed policies, samples and two rewards."""
    content = {
        "seeds": SEEDS,
        "baseline": "sft",
        "compute": COMPUTE | {"row_tokens": 96},
        "model": {"path": None, "revision": None, "thinking": None, "tiny": TINY},
        "engine": "transformers",
    }
    write_yaml(Path("params.yaml"), content)
    write_yaml(STUDY_PARAMS, {study: settings})
    splits = {split: prompts(split, 6) for split in ("train", "dev", "test")}
    for split, problems in splits.items():
        lines.write_lines(PROMPTS / f"{split}.jsonl", problems)
    for seed in SEEDS:
        for number, name in enumerate(policies):
            model = build_tiny(TinyConfig(**TINY), words(), 10 * number + seed)
            policy.save_model(model, words(), rows.locate_policy(name, seed))
            folder = DATA / "samples" / name / str(seed)
            for split in ("dev", "test"):
                lines.write_lines(folder / f"{split}.jsonl", completions(splits[split], 8))
                lines.write_lines(folder / f"{split}_greedy.jsonl", completions(splits[split], 1))
            files = [
                SampledFile(name=f"{split}{end}", split=split, temperature=temperature)
                for split in ("dev", "test")
                for end, temperature in (("", 1.0), ("_greedy", 0.0))
            ]
            lines.write_lines(folder / "temperatures.jsonl", files)
        start, generator = rows.locate_policy("sft", seed), torch.Generator().manual_seed(seed)
        process = process_head.init_process_model(start, 2, compute(), CPU)
        for parameter in process_head.get_head(process).parameters():
            torch.nn.init.normal_(parameter, generator=generator)
        policy.save_model(process, words(), DATA / f"rewards/process/{seed}/model")
        for member in range(2):
            model = scalar_head.init_scalar_model(
                start, words().pad_token_id, compute(), CPU, head_seed=member
            )
            policy.save_model(model, words(), DATA / f"rewards/preference/{seed}/model/{member}")
    for kind in ("process", "preference"):
        reward_file.write_reward(DATA / "rewards" / kind, reward_file.model_reward_file(kind))


def write_yaml(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(content, file)


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def outputs(study: str) -> dict[str, bytes]:
    """Everything that a study wrote, but its run record and the digest of its inputs."""
    folder = DATA / "studies" / study
    result = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes()
        for name, path in result.items()
        if not name.startswith("run/") and name != "journal/key.json"
    }
