"""What a stage reads, in the current folder: params.yaml, a preset, and a pool."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tiny_checkpoints
from ruamel.yaml import YAML
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoTokenizer, LlamaConfig, PreTrainedTokenizerFast

from stages import rows
from stages.config import PARAMS_PATH, PRESETS_PATH
from stages.records import lines
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rows import DATA, PROMPTS

PRESET = "mine"
SEED = 3
POOL = DATA / "pools/old"
WORDS = ("new", "--by", "x", "--preset", PRESET, "--from", "sft", "--on", "pools/old")
"""A row's words as a stage is told them."""
TINY = {
    "hidden_size": 16,
    "num_layers": 1,
    "num_heads": 2,
    "intermediate_size": 32,
    "max_length": 256,
    "vocab_size": 700,
}
MODEL = {"path": None, "revision": None, "thinking": None, "tiny": TINY}
EVALUATION = {
    "ks": [1],
    "num_draws": 8,
    "num_bootstrap": 200,
    "confidence": 0.95,
    "decimals": 5,
    "max_cut_share": 1.0,
}


def configure(preset: Mapping[str, Any], seeds: Sequence[int] = (SEED,), **sections: Any) -> None:
    """params.yaml with these sections, and presets.yaml with the preset `mine`."""
    PRESETS_PATH.parent.mkdir(exist_ok=True)
    plain = {"seeds": list(seeds), "num_processes": 1, "model": MODEL}
    content = {PARAMS_PATH: plain | sections}
    content[PRESETS_PATH] = {PRESET: dict(preset)}
    for path, keys in content.items():
        with path.open("w", encoding="utf-8") as file:
            YAML(typ="safe").dump(keys, file)


def write_policy(name: str = "sft", seed: int = SEED) -> None:
    """A policy with random weights, whose tokens 2 to 31 are words."""
    folder = rows.locate_policy(name, seed)
    tiny_checkpoints.load("llama").save_pretrained(folder)
    vocab = {"<pad>": 0, "</s>": 1, **{f"w{i}": i for i in range(2, 32)}}
    words = Tokenizer(WordLevel(vocab, unk_token="<pad>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="</s>")
    tokenizer.save_pretrained(folder)


def write_pool(
    side: str, prompts: Sequence[Prompt], completions: Sequence[Completion], seed: int = SEED
) -> None:
    """One side of the pool `old`: of the problems of `preference`, or of `dev`."""
    split = "preference" if side == "train" else "dev"
    lines.write_lines(PROMPTS / f"{split}.jsonl", prompts)
    lines.write_lines(POOL / str(seed) / f"{side}.jsonl", completions)
    pool = {"split": "preference", "policy": "sft"}
    (POOL / "pool.json").write_text(json.dumps(pool), encoding="utf-8")


def write_answers(side: str, answers: Mapping[str, str], seed: int = SEED) -> None:
    """Problem `name`, of answer 4, with a completion for each character of `answers[name]`."""
    prompts = [
        Prompt(id=name, task="solve", question="2+2?", prompt="2+2?", prompt_ids=[5], answer="4")
        for name in answers
    ]
    completions = [
        Completion(
            id=name,
            index=index,
            completion=f"#### {answer}",
            completion_ids=[20 + index, int(answer), 3],
            logprob_sum=-1.0,
            finish_reason="stop",
            seed=0,
        )
        for name, text in answers.items()
        for index, answer in enumerate(text)
    ]
    write_pool(side, prompts, completions, seed)


def metrics(folder: Path) -> dict[str, Any]:
    """metrics.json of an output."""
    return json.loads((folder / "metrics.json").read_text(encoding="utf-8"))


def add_token_without_embedding(token: str) -> Mapping[str, Any]:
    """Section `model` of a model whose tokenizer, that of `base`, has a token more than it."""
    folder = rows.locate_policy(rows.BASE, 0)
    words = AutoTokenizer.from_pretrained(folder)
    LlamaConfig(vocab_size=len(words)).save_pretrained("model")
    words.add_tokens([token])
    words.save_pretrained(folder)
    return MODEL | {"path": "model"}
