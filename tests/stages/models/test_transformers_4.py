"""Exported files mean the same to transformers 4.57 as to 5: keys by hand, logits by both."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from chat_tokenizers import make_tokenizer
from ruamel.yaml import YAML
from safetensors.torch import load_file
from tiny_checkpoints import BLOCKS, SHAPE
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from stages.models import policy, transformers_4

ROPES = YAML(typ="safe").load(Path(__file__).with_name("transformers_4.yaml"))
OLD = ("rope_theta", "rope_scaling", "rope_local_base_freq", "rotary_emb_base", "rotary_pct",
       "partial_rotary_factor", "original_max_position_embeddings")  # fmt: skip
TEXT = "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n"
# In the environment that is handed to it: folders, after the text.
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
    shape = (SHAPE if name in ("other names", "none") else BLOCKS) | shape
    shape |= {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id}
    shape |= {} if rope is None else {"rope_parameters": copy.deepcopy(rope)}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **shape))
    policy.save_model(model, tokenizer, folder)
    return folder


@pytest.mark.parametrize("name", ROPES)
def test_the_keys_of_version_4_say_the_same_positions(name, tmp_path):
    before = AutoConfig.from_pretrained(save(name, tmp_path))
    assert transformers_4.add_old_keys(tmp_path) == ""
    config = json.loads((tmp_path / "config.json").read_bytes())
    assert {key: config[key] for key in OLD if key in config} == ROPES[name][3]
    ropes = [getattr(config, "rope_parameters", None) or {} for config in
             (AutoConfig.from_pretrained(tmp_path), before)]  # fmt: skip
    ropes[0].pop("type", None)
    assert ropes[0] == ropes[1]


def test_positions_that_version_4_cannot_say_are_named(tmp_path):
    kind, shape, rope, _ = ROPES["two types of layers"]
    rope = rope | {"sliding_attention": {"rope_type": "linear", "rope_theta": 9.0, "factor": 2.0}}
    AutoConfig.for_model(kind, **BLOCKS | shape, rope_parameters=rope).save_pretrained(tmp_path)
    before = (tmp_path / "config.json").read_bytes()
    assert "gemma3_text" in transformers_4.add_old_keys(tmp_path)
    assert (tmp_path / "config.json").read_bytes() == before


def test_the_tokenizer_is_of_a_class_that_version_4_has(tmp_path):
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
def test_both_versions_compute_the_same_logits(tmp_path):
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
