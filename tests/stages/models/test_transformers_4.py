"""Exported files mean the same to transformers 4.57 as to 5: keys by hand, logits by both."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_tokenizers import make_tokenizer
from safetensors.torch import load_file
from tiny_checkpoints import BLOCKS, SHAPE
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from stages.models import policy, transformers_4

LONG = {"short_factor": [1.0, 2.0], "long_factor": [3.0, 4.0]}
LLAMA_3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
GPT_NEOX = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 32, "max_position_embeddings": 128}  # fmt: skip
GPT_2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 128}
LAYERS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8,
          "head_dim": 4}  # fmt: skip
# Name -> model_type, shape, rope_parameters of transformers 5, the keys of transformers 4.
ROPES: dict[str, tuple[str, dict[str, Any], Any, dict[str, Any]]] = {
    "theta": ("llama", BLOCKS, {"rope_type": "default", "rope_theta": 100.0},
              {"rope_theta": 100.0, "rope_scaling": None}),
    "linear": ("qwen3", BLOCKS, {"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0},
               {"rope_theta": 100.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "llama3": (
        "llama", BLOCKS,
        {"rope_type": "llama3", "rope_theta": 100.0, "original_max_position_embeddings": 16}
        | LLAMA_3,
        {"rope_theta": 100.0, "rope_scaling":
         {"rope_type": "llama3", "original_max_position_embeddings": 16} | LLAMA_3}),
    "longrope": (
        "phi3", BLOCKS | {"original_max_position_embeddings": 32},
        {"rope_type": "longrope", "rope_theta": 100.0, "partial_rotary_factor": 1.0,
         "original_max_position_embeddings": 32} | LONG,
        {"rope_theta": 100.0, "partial_rotary_factor": 1.0, "original_max_position_embeddings": 32,
         "rope_scaling": {"type": "longrope"} | LONG}),
    "part": ("stablelm", BLOCKS,
             {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5},
             {"rope_theta": 100.0, "partial_rotary_factor": 0.5, "rope_scaling": None}),
    "other names": ("gpt_neox", SHAPE | GPT_NEOX,
                    {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5},
                    {"rotary_emb_base": 100.0, "rotary_pct": 0.5, "rope_scaling": None}),
    "two types of layers": (
        "gemma3_text", BLOCKS | LAYERS,
        {"full_attention": {"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0},
         "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}},
        {"rope_theta": 100.0, "rope_local_base_freq": 50.0,
         "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "none": ("gpt2", SHAPE | GPT_2, None, {}),
}  # fmt: skip
OLD = ("rope_theta", "rope_scaling", "rope_local_base_freq", "rotary_emb_base", "rotary_pct",
       "partial_rotary_factor", "original_max_position_embeddings")  # fmt: skip
TEXT = "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n"
# In the environment that is handed to it: folders, behind the text.
PROGRAM = """
import json, sys, torch, transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
read = {"version": transformers.__version__}
for folder in sys.argv[2:]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "user", "content": "What is 2 + 2?"}]
    chat = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(sys.argv[1] + chat)["input_ids"]
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    with torch.no_grad():
        logits = model(torch.tensor([(ids * 40)[:60]])).logits
    save_file({"logits": logits}, folder + "/logits.safetensors")
    read[folder] = [ids, sorted(tokenizer.all_special_tokens)]
print(json.dumps(read))
"""


def save(name: str, folder: Path) -> Path:
    kind, shape, rope, _ = ROPES[name]
    tokenizer = make_tokenizer("qwen_base")
    shape = shape | {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id}
    rope = {} if rope is None else {"rope_parameters": json.loads(json.dumps(rope))}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **shape, **rope))
    policy.save_model(model, tokenizer, folder)
    return folder


@pytest.mark.parametrize("name", ROPES)
def test_the_keys_of_version_4_say_the_same_positions(name: str, tmp_path: Path) -> None:
    before = AutoConfig.from_pretrained(save(name, tmp_path))
    assert transformers_4.add_old_keys(tmp_path) == ""
    config = json.loads((tmp_path / "config.json").read_bytes())
    assert {key: config[key] for key in OLD if key in config} == ROPES[name][3]
    ropes = [getattr(config, "rope_parameters", None) or {} for config in
             (AutoConfig.from_pretrained(tmp_path), before)]  # fmt: skip
    ropes[0].pop("type", None)
    assert ropes[0] == ropes[1]


def test_positions_that_version_4_cannot_say_are_named(tmp_path: Path) -> None:
    kind, shape, rope, _ = ROPES["two types of layers"]
    rope = rope | {"sliding_attention": {"rope_type": "linear", "rope_theta": 9.0, "factor": 2.0}}
    config = AutoConfig.for_model(kind, **shape, rope_parameters=rope)
    config.save_pretrained(tmp_path)
    before = (tmp_path / "config.json").read_bytes()
    assert "gemma3_text" in transformers_4.add_old_keys(tmp_path)
    assert (tmp_path / "config.json").read_bytes() == before


def test_the_tokenizer_is_of_a_class_that_version_4_has(tmp_path: Path) -> None:
    tokenizer = make_tokenizer("qwen_base")
    save("theta", tmp_path)
    transformers_4.add_old_keys(tmp_path)
    content = json.loads((tmp_path / "tokenizer_config.json").read_bytes())
    assert content["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert "extra_special_tokens" not in content
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again(TEXT)["input_ids"] == tokenizer(TEXT)["input_ids"]
    assert set(again.all_special_tokens) == set(tokenizer.all_special_tokens)
    assert again.chat_template == tokenizer.chat_template


@pytest.mark.weekly
def test_both_versions_compute_the_same_logits(tmp_path: Path) -> None:
    packages = os.environ.get("TRANSFORMERS_4", "")
    if not packages:
        pytest.skip("TRANSFORMERS_4 names no folder: pip install --no-deps --target FOLDER "
                    "-r .ci/transformers-4-requirements.txt")  # fmt: skip
    folders = {name: save(name, tmp_path / str(i)) for i, name in enumerate(ROPES)}
    for folder in folders.values():
        assert transformers_4.add_old_keys(folder) == ""
    results = []
    for path in ("", packages):
        words = [sys.executable, "-c", PROGRAM, TEXT, *map(str, folders.values())]
        environment = os.environ | {"PYTHONPATH": path}
        shown = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE).stdout
        logits = {name: load_file(folders[name] / "logits.safetensors") for name in folders}
        results.append((json.loads(shown), logits))
    (five, expected), (four, logits) = results
    assert (five.pop("version")[:2], four.pop("version")[:5]) == ("5.", "4.57.")
    assert five == four
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
