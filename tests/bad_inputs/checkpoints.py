"""Models of `model.path` that are not whole, not theirs, or not what can be trained."""

import json
import shutil
from pathlib import Path

import torch
from bad_inputs.case import Case, Put, recoded, whole
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

MODEL = Path("model")
WEIGHTS, CONFIG, INDEX = (
    f"model/{name}" for name in ("model.safetensors", "config.json", "model.safetensors.index.json")
)
UP = "model.layers.1.mlp.up_proj.weight"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def save(folder: Path, shard: int | str = "1GB") -> None:
    """A small Llama with its tokenizer."""
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    words.train_from_iterator(
        ["What is 2 plus 3? 2 + 3 = 5"],
        trainers.BpeTrainer(
            vocab_size=300, special_tokens=["</s>"], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )  # fmt: skip
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>", pad_token="</s>")
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=2048,
        eos_token_id=0, pad_token_id=0, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder, max_shard_size=shard)


def config(**changes: object) -> Put:
    """config.json with these keys; ... takes one out."""

    def put() -> None:
        content = json.loads(Path(CONFIG).read_text(encoding="utf-8")) | changes
        kept = {name: item for name, item in content.items() if item is not ...}
        Path(CONFIG).write_text(json.dumps(kept), encoding="utf-8")

    return put


def tensors(change) -> Put:
    """The weights, changed."""

    def put() -> None:
        weights = load_file(WEIGHTS)
        save_file(change(weights) or weights, WEIGHTS, metadata={"format": "pt"})

    return put


def sharded(change: Put = lambda: None) -> Put:
    """The model in pieces, then changed."""
    return lambda: (shutil.rmtree(MODEL), save(MODEL, 3000), change())


def without(*patterns: str) -> Put:
    """The folder without these files."""
    return lambda: [path.unlink() for item in patterns for path in MODEL.glob(item)]


def pickled() -> None:
    torch.save(load_file(WEIGHTS), MODEL / "pytorch_model.bin")
    Path(WEIGHTS).unlink()


def adapters() -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(LlamaForCausalLM.from_pretrained(MODEL), LoraConfig(r=2))
    without("model.safetensors", "config.json")()
    model.save_pretrained(MODEL)


def damage(weights) -> None:
    weights[UP][0, 0] = float("nan")


def tokenizer_config(**changes: object) -> Put:
    def change(data: bytes) -> bytes:
        return json.dumps(json.loads(data) | changes).encode()

    return recoded("model/tokenizer_config.json", change)


CASES = [
    Case("a model as it should be", lambda: None),
    Case("a model in pieces", sharded()),
    Case("one piece is missing", sharded(without("model-00002*"))),
    Case("no index of the pieces", sharded(without("*.index.json"))),
    Case("the index is cut", sharded(whole(INDEX, "{"))),
    Case("the index is a list", sharded(whole(INDEX, "[]"))),
    Case("an empty folder", without("*")),
    Case("no tokenizer", without("tokenizer*")),
    Case("a tokenizer that is cut", recoded("model/tokenizer.json", lambda data: data[:500])),
    Case("a tokenizer without an end", tokenizer_config(eos_token=None)),
    Case("a tokenizer of another vocabulary", config(vocab_size=100)),
    Case("a chat template that is broken", whole("model/chat_template.jinja", "{% for m in %}")),
    Case(
        "a chat template that refuses",
        whole("model/chat_template.jinja", "{{ raise_exception('tools only') }}"),
    ),
    Case("no config.json", without("config.json")),
    Case("an empty config.json", whole(CONFIG, "")),
    Case("a config.json with a BOM", recoded(CONFIG, lambda data: b"\xef\xbb\xbf" + data)),
    Case("a config.json in UTF-16", recoded(CONFIG, lambda data: data.decode().encode("utf-16"))),
    Case("a list for config.json", whole(CONFIG, "[1]")),
    Case("a kind of model that is none", config(model_type="lama")),
    Case("no kind of model", config(model_type=..., architectures=...)),
    Case("no architecture", config(architectures=...)),
    Case("code of its own", config(model_type="mine", auto_map={"AutoConfig": "x.Y"})),
    Case("a word for a width", config(hidden_size="big")),
    Case("no weights", without("model.safetensors")),
    Case("pickled weights", pickled),
    Case("LoRA adapters alone", adapters),
    Case("GGUF", lambda: Path(WEIGHTS).rename(MODEL / "model.gguf")),
    Case("weights that are cut", recoded(WEIGHTS, lambda data: data[:3000])),
    Case("empty weights", whole(WEIGHTS, "")),
    Case("a Git LFS pointer for weights", whole(WEIGHTS, POINTER)),
]
LOADED = [
    Case("weights of GPTQ", config(quantization_config={"quant_method": "gptq", "bits": 4})),
    Case("a tensor missing", tensors(lambda all_of: {k: v for k, v in all_of.items() if k != UP})),
    Case("a tensor of another shape", tensors(lambda all_of: all_of | {UP: torch.zeros(5, 5)})),
    Case("tensors renamed", tensors(lambda all_of: {f"my.{k}": v for k, v in all_of.items()})),
    Case("a NaN in a tensor", tensors(damage)),
]
"""Which the first stage that trains is the first to see: prepare_data reads no weights."""
