"""Files of the base model: GGUF converted, digests, and what depends on them."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from chat_tokenizers import make_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from stages import plan
from stages.models import model_files, row_policy
from stages.models.row_policy import ModelConfig, TinyConfig

HIDDEN, LAYERS, INNER, VOCAB = 32, 1, 64, 48
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}"
TINY = TinyConfig(
    hidden_size=64, num_layers=1, num_heads=2, intermediate_size=16, max_length=96, vocab_size=700
)


def write_gguf(path: Path, *, seed: int = 0) -> dict[str, np.ndarray]:
    """A Llama with weights in Q8_0 and norms in float32; its weights, dequantised."""
    rng, weights = np.random.default_rng(seed), {}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(VOCAB)
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens += [chr(ord("a") + i % 26) * (1 + i // 26) for i in range(VOCAB - 3)]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (VOCAB - 3))
    writer.add_token_merges(["a a", "b b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    shapes = {
        "token_embd": (VOCAB, HIDDEN), "output_norm": (HIDDEN,), "output": (VOCAB, HIDDEN),
        "blk.0.attn_norm": (HIDDEN,), "blk.0.ffn_norm": (HIDDEN,),
        "blk.0.attn_q": (HIDDEN, HIDDEN), "blk.0.attn_k": (HIDDEN, HIDDEN),
        "blk.0.attn_v": (HIDDEN, HIDDEN), "blk.0.attn_output": (HIDDEN, HIDDEN),
        "blk.0.ffn_gate": (INNER, HIDDEN), "blk.0.ffn_up": (INNER, HIDDEN),
        "blk.0.ffn_down": (HIDDEN, INNER),
    }  # fmt: skip
    kind = gguf.GGMLQuantizationType.Q8_0
    for name, shape in shapes.items():
        values = rng.normal(size=shape).astype(np.float32)
        if len(shape) == 2:
            data = gguf.quants.quantize(values, kind)
            weights[name] = gguf.quants.dequantize(data, kind)
            writer.add_tensor(f"{name}.weight", data, raw_dtype=kind)
        else:
            weights[name] = values
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


def make_config(path: str) -> ModelConfig:
    return ModelConfig(path=path, revision=None, thinking=None, tiny=TINY)


def test_a_gguf_file_is_a_model_like_any_other(file):
    weights = write_gguf(file)
    path, revision = row_policy.locate_policy("base", 0, make_config("models/tiny.gguf"))
    assert revision is None
    assert (Path(path) / "model.safetensors").is_file()
    model = AutoModelForCausalLM.from_pretrained(path)
    assert model.dtype == torch.float32
    state = model.state_dict()
    pairs = {"token_embd": "model.embed_tokens", "output": "lm_head",
             "blk.0.ffn_up": "model.layers.0.mlp.up_proj",
             "output_norm": "model.norm"}  # fmt: skip
    for name, other in pairs.items():
        np.testing.assert_array_equal(state[f"{other}.weight"].numpy(), weights[name])
    tokenizer = AutoTokenizer.from_pretrained(path)
    assert tokenizer.chat_template == TEMPLATE
    assert tokenizer.eos_token == "<|im_end|>"
    assert make_config("models/tiny.gguf").tokenizer([]).chat_template == TEMPLATE


def test_it_is_converted_once_and_again_where_it_changes(file):
    write_gguf(file)
    first = Path(model_files.locate_folder("models/tiny.gguf"))
    changed = (first / "model.safetensors").stat().st_mtime_ns
    assert Path(model_files.locate_folder("models/tiny.gguf")) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == changed
    content = (first / "model.safetensors").read_bytes()
    for path in first.iterdir():
        path.unlink()
    assert Path(model_files.locate_folder("models/tiny.gguf")) == first  # half of it was deleted
    assert (first / "model.safetensors").read_bytes() == content
    write_gguf(file, seed=1)
    second = Path(model_files.locate_folder("models/tiny.gguf"))
    assert second != first
    assert (second / "model.safetensors").read_bytes() != content


def test_a_file_in_a_package_is_found_without_running_the_package(file, monkeypatch):
    package = file.parent / "some_weights"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError\n")
    monkeypatch.syspath_prepend(str(file.parent))
    write_gguf(package / "tiny.gguf")
    path = "package:some_weights/tiny.gguf"
    origin = model_files.describe_origin(path)
    assert origin is not None
    assert origin.quantisation == "Q8_0"
    assert list(
        plan.digest_inputs({"model": {"path": path}, "data": {"source": {"kind": "word_problems"}}})
    ) == ["model.path/tiny.gguf"]
    for wrong in ("package:some_weights/none.gguf", "package:nothing_of_that_name/tiny.gguf"):
        with pytest.raises(ValueError, match="expected a GGUF file"):
            model_files.locate_folder(wrong)


def test_a_broken_file_is_refused(file):
    file.write_bytes(b"GGUF\x03\x00\x00\x00nothing")
    with pytest.raises(ValueError, match=r"tiny\.gguf: expected a GGUF file"):
        model_files.locate_folder("models/tiny.gguf")


def test_other_weights_in_a_folder_are_noticed(file):
    """Their digests are inputs of prepare_data, and stand beside the base model's tokenizer."""
    folder = file.parent / "own"
    make_tokenizer("gemma").save_pretrained(folder)
    (folder / "model.safetensors").write_bytes(b"1")
    params = {"model": {"path": "models/own"}, "data": {"source": {"kind": "word_problems"}}}
    before = plan.digest_inputs(params)
    assert "model.path/model.safetensors" in before
    (folder / "model.safetensors").write_bytes(b"2")
    after = plan.digest_inputs(params)
    assert {key for key in before if before[key] != after[key]} == {"model.path/model.safetensors"}
    assert json.loads(model_files.describe_origin("models/own").model_dump_json())["files"] == {
        key.rpartition("/")[2]: value for key, value in after.items()
    }
    assert "outside data/raw" in plan.describe_unwatched("models/own")
    assert plan.describe_unwatched(None) is None
    assert plan.describe_unwatched("owner/model") is None


def test_an_edit_of_a_template_with_a_name_is_noticed(file):
    folder = file.parent / "own"
    tokenizer = make_tokenizer("gemma")
    tokenizer.chat_template = {"default": TEMPLATE, "tool_use": TEMPLATE}
    tokenizer.save_pretrained(folder)
    params = {"model": {"path": "models/own"}, "data": {"source": {"kind": "word_problems"}}}
    before = plan.digest_inputs(params)
    (folder / "additional_chat_templates/tool_use.jinja").write_text("{{ tools }}")
    after = plan.digest_inputs(params)
    assert {key for key in before if before[key] != after[key]} == {
        "model.path/additional_chat_templates/tool_use.jinja"
    }
