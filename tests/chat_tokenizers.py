"""Tokenizers with the special tokens and the chat templates of well-known models, by name."""

import json
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from stages.models.model_tokenizer import pin_date, train_tokenizer

TEXTS = ["What is 2 plus 2? user assistant model system 2 + 2 = 4 The answer is 4."] * 2
_CONTENT: dict[str, Any] = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml"))
TEMPLATES: dict[str, str] = _CONTENT["templates"]
for _name, (_of, *_edits) in _CONTENT["edits"].items():
    TEMPLATES[_name] = TEMPLATES[_of]
    for _text, _other in _edits:
        TEMPLATES[_name] = TEMPLATES[_name].replace(_text, _other)
KINDS = {
    name: (TEMPLATES.get(kind["template"]), kind["bos"], kind["eos"], kind["others"])
    for name, kind in _CONTENT["kinds"].items()
}
"""Template, begin and end of a sequence, other special tokens."""
TOOL_TOKENS = ["<|im_start|>", "<|im_end|>", "<|start|>", "<|head|>", "<|eot|>", "<s>", "</s>",
               "[TOOL_CALLS]", "<|endoftext|>", "[/THINK]"]  # fmt: skip


def make(name: str, text: str = "", other: str = "") -> PreTrainedTokenizerFast:
    """A kind of `make_tokenizer`; a template, with the tokens of Qwen's; `tool` or `sentencepiece`
    and a template, and perhaps an end: such a tokenizer. `other` takes the place of `text`."""
    way, *words = name.split()
    if way == "tool":
        tokenizer = make_tool_tokenizer(TEMPLATES[words[0]], *words[1:])
    elif way == "sentencepiece":
        tokenizer = make_sentencepiece(TEMPLATES[words[0]])
    else:
        tokenizer = make_tokenizer("qwen_base" if way in TEMPLATES else way)
        tokenizer.chat_template = TEMPLATES.get(way, tokenizer.chat_template)
        pin_date(tokenizer)
    if text:
        assert text in tokenizer.chat_template
        tokenizer.chat_template = tokenizer.chat_template.replace(text, other)
    return tokenizer


def make_tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """Tokenizer of a kind; it starts texts with its begin token, if it has one, as Llama's do."""
    template, bos, eos, others = KINDS[kind]
    inner = train_tokenizer(TEXTS, 720).backend_tokenizer
    begin = {} if bos is None else {"bos_token": bos}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=eos, pad_token="<|pad|>",
        additional_special_tokens=others, clean_up_tokenization_spaces=False, **begin,
    )  # fmt: skip
    if bos is not None:
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.bos_token_id)]
        )
    tokenizer.chat_template = template
    return tokenizer


def make_sentencepiece(template: str) -> PreTrainedTokenizerFast:
    """Tokenizer in the manner of Mistral: a text begins with a space, spaces are of words."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ])  # fmt: skip
    trainer = trainers.BpeTrainer(
        vocab_size=200, show_progress=False,
        special_tokens=["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<0x0A>"],
    )  # fmt: skip
    tokenizer.train_from_iterator(TEXTS, trainer)
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [row for row in content["added_tokens"] if row["content"][1] != "0"]
    fast = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(content)), unk_token="<unk>",
        bos_token="<s>", eos_token="</s>", clean_up_tokenization_spaces=False,
    )  # fmt: skip
    fast.chat_template = template
    return fast


def make_tool_tokenizer(template: str, end: str | None = None) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with the special tokens of the template's family, or another end."""
    ends = {TEMPLATES["LLAMA"]: "<|eot|>", TEMPLATES["MISTRAL"]: "</s>"}
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=TOOL_TOKENS, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["How many books?"], trainer)
    eos = end or ends.get(template, "<|im_end|>")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=eos)
    fast.chat_template = template
    return fast
