"""Files of the base model: GGUF converted, digests, what depends on them, and what is not whole."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from chat_tokenizers import make_tokenizer
from studied_run import TINY
from tiny_checkpoints import build
from transformers import AutoModelForCausalLM

from stages import plan
from stages.config import read_yaml
from stages.models import model_files, row_policy
from stages.models.model_files import check_model_files, locate_folder
from stages.models.row_policy import ModelConfig

HIDDEN, INNER, VOCAB = 32, 64, 48
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}"
SHAPES = {
    "token_embd": (VOCAB, HIDDEN), "output_norm": (HIDDEN,), "output": (VOCAB, HIDDEN),
    "blk.0.attn_norm": (HIDDEN,), "blk.0.ffn_norm": (HIDDEN,),
    "blk.0.attn_q": (HIDDEN, HIDDEN), "blk.0.attn_k": (HIDDEN, HIDDEN),
    "blk.0.attn_v": (HIDDEN, HIDDEN), "blk.0.attn_output": (HIDDEN, HIDDEN),
    "blk.0.ffn_gate": (INNER, HIDDEN), "blk.0.ffn_up": (INNER, HIDDEN),
    "blk.0.ffn_down": (HIDDEN, INNER),
}  # fmt: skip


def write_gguf(path: Path, *, seed: int = 0) -> dict[str, np.ndarray]:
    """A Llama with weights in Q8_0 and norms in float32; its weights, dequantised."""
    rng, weights = np.random.default_rng(seed), {}
    writer = gguf.GGUFWriter(path, "llama")
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens += [chr(ord("a") + i % 26) * (1 + i // 26) for i in range(VOCAB - 3)]
    for name, value in {
        "context_length": 64, "embedding_length": HIDDEN, "block_count": 1,
        "feed_forward_length": INNER, "head_count": 2, "head_count_kv": 2,
        "layer_norm_rms_eps": 1e-5, "rope_freq_base": 10000.0, "vocab_size": VOCAB,
        "tokenizer_model": "gpt2", "token_list": tokens,
        "token_types": [3, 3, 3] + [1] * (VOCAB - 3), "token_merges": ["a a", "b b"],
        "bos_token_id": 1, "eos_token_id": 2, "chat_template": TEMPLATE,
    }.items():  # fmt: skip
        getattr(writer, f"add_{name}")(value)
    kind = gguf.GGMLQuantizationType.Q8_0
    for name, shape in SHAPES.items():
        weights[name] = values = rng.normal(size=shape).astype(np.float32)
        if len(shape) == 2:
            data = gguf.quants.quantize(values, kind)
            weights[name] = gguf.quants.dequantize(data, kind)
            writer.add_tensor(f"{name}.weight", data, raw_dtype=kind)
        else:
            writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    return tmp_path / "models/tiny.gguf"


def test_a_gguf_file_is_a_model_like_any_other_and_converted_again_where_it_changes(file):
    weights = write_gguf(file)
    config = ModelConfig(path="models/tiny.gguf", revision=None, thinking=None, tiny=TINY)
    path, revision = row_policy.locate_policy("base", 0, config)
    assert revision is None
    model = AutoModelForCausalLM.from_pretrained(path, use_safetensors=True)
    assert model.dtype == torch.float32
    pairs = {"token_embd": "model.embed_tokens", "output": "lm_head", "output_norm": "model.norm",
             "blk.0.ffn_up": "model.layers.0.mlp.up_proj"}  # fmt: skip
    for name, other in pairs.items():
        np.testing.assert_array_equal(model.state_dict()[f"{other}.weight"], weights[name])
    tokenizer = config.tokenizer([])
    assert (tokenizer.chat_template, tokenizer.eos_token) == (TEMPLATE, "<|im_end|>")
    written = Path(path) / "model.safetensors"
    content, changed = written.read_bytes(), written.stat().st_mtime_ns
    assert locate_folder("models/tiny.gguf") == path
    assert written.stat().st_mtime_ns == changed  # converted once
    for part in Path(path).iterdir():
        part.unlink()
    assert locate_folder("models/tiny.gguf") == path  # half of it was deleted
    assert written.read_bytes() == content
    write_gguf(file, seed=1)
    second = locate_folder("models/tiny.gguf")
    assert second != path
    assert (Path(second) / "model.safetensors").read_bytes() != content


def digest_inputs(path: str) -> dict[str, str]:
    return plan.digest_inputs(
        {"model": {"path": path}, "data": {"source": {"kind": "word_problems"}}}
    )


def test_a_file_in_a_package_is_read_without_running_the_package(file, monkeypatch):
    package = file.parent / "some_weights"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError\n")
    monkeypatch.syspath_prepend(str(file.parent))
    write_gguf(package / "tiny.gguf")
    path = "package:some_weights/tiny.gguf"
    assert model_files.describe_origin(path).quantisation == "Q8_0"
    assert list(digest_inputs(path)) == ["model.path/tiny.gguf"]
    file.write_bytes(b"GGUF\x03\x00\x00\x00nothing")
    for wrong in ("package:some_weights/none.gguf", "package:nothing_of_that_name/tiny.gguf",
                  "models/none.gguf", "models/tiny.gguf"):  # fmt: skip
        with pytest.raises(ValueError, match=wrong.rpartition("/")[2]):
            locate_folder(wrong)


def test_an_edit_of_a_file_of_the_model_is_another_input(file):
    """Weights, and templates with a name; the digests stand beside the base model's tokenizer."""
    folder = file.parent / "own"
    tokenizer = make_tokenizer("gemma")
    tokenizer.chat_template = {"default": TEMPLATE, "tool_use": TEMPLATE}
    tokenizer.save_pretrained(folder)
    (folder / "model.safetensors").write_bytes(b"1")
    for name in ("model.safetensors", "additional_chat_templates/tool_use.jinja"):
        before = digest_inputs("models/own")
        (folder / name).write_bytes(b"2")
        after = digest_inputs("models/own")
        assert {key for key in before if before[key] != after[key]} == {f"model.path/{name}"}
    origin = json.loads(model_files.describe_origin("models/own").model_dump_json())["files"]
    assert origin == {key.removeprefix("model.path/"): value for key, value in after.items()}


FOLDERS = read_yaml(Path(__file__).with_name("model_files.yaml"))


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_without_a_whole_model_is_refused_before_any_work(name, tmp_path):
    row = FOLDERS[name]
    build("llama").save_pretrained(tmp_path, max_shard_size=row.get("size", "1GB"))
    for file in row.get("lost", ()):
        (tmp_path / file).unlink()
    for file, text in row.get("written", {}).items():
        (tmp_path / file).write_text(text)
    if row["says"] is None:
        check_model_files(str(tmp_path))
    else:
        with pytest.raises(ValueError, match=row["says"]):
            check_model_files(str(tmp_path))
    check_model_files(None)
    check_model_files("owner/model")
