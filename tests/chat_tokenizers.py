"""Tokenizers with the special tokens and the chat templates of well-known models, written anew."""

import json

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from stages.models.model_tokenizer import train_tokenizer

TEXTS = ["What is 2 plus 2? user assistant model system 2 + 2 = 4 The answer is 4."] * 2
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>"
    "{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
PHI = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"
)
LLAMA_2 = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token }}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }} {{ eos_token }}{% endif %}{% endfor %}"
)
LLAMA_3 = (
    "{{ bos_token }}{% if not date_string is defined %}"
    "{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "<|start_header_id|>system<|end_header_id|>\n\nToday Date: {{ date_string }}\n\n<|eot_id|>"
    "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GPT_OSS = (
    "<|start|>system<|message|>Current date: {{ strftime_now('%Y-%m-%d') }}<|end|>"
    "{% for m in messages %}<|start|>{{ m.role }}"
    "{% if m.role == 'assistant' %}<|channel|>final{% endif %}<|message|>{{ m.content }}"
    "{{ '<|return|>' if m.role == 'assistant' and loop.last else '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
R1 = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<User>{{ m.content }}"
    "{% else %}<Assistant>{{ m.content.split('</think>')[-1] }}{{ eos_token }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<Assistant><think>\n{% endif %}"
)
KINDS = {
    "gemma": (GEMMA, "<bos>", "<eos>", ["<start_of_turn>", "<end_of_turn>"]),
    "phi": (PHI, "<s>", "<|endoftext|>", ["<|end|>", "<|user|>", "<|assistant|>"]),
    "qwen_base": (CHATML, None, "<|endoftext|>", ["<|im_start|>", "<|im_end|>"]),
    "llama_2": (LLAMA_2, "<s>", "</s>", []),
    "llama_3": (
        LLAMA_3, "<|begin_of_text|>", "<|eot_id|>",
        ["<|start_header_id|>", "<|end_header_id|>", "<|end_of_text|>"],
    ),
    "gpt_oss": (
        GPT_OSS, "<|startoftext|>", "<|return|>",
        ["<|start|>", "<|end|>", "<|message|>", "<|channel|>"],
    ),
    "r1": (R1, "<begin>", "<end>", ["<User>", "<Assistant>", "<think>", "</think>"]),
    "plain": (None, "<s>", "</s>", []),
}  # fmt: skip


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


ZEPHYR = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
MISTRAL_3 = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]"
    "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
QWEN_3 = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.last %}<think>\n{{ m.reasoning_content }}\n</think>\n\n"
    "{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


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


# Of templates that render tools, calls and results.
HERMES = (
    "{% if tools %}{{ '<|im_start|>system\n<tools>' }}"
    "{% for tool in tools %}{{ '\n' + (tool | tojson) }}{% endfor %}"
    "{{ '\n</tools><|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}{{ '<|im_start|>user\n<tool_response>\n' }}"
    "{{ m.content }}{{ '\n</tool_response><|im_end|>\n' }}"
    "{% else %}{{ '<|im_start|>' + m.role }}"
    "{% if m.reasoning_content %}{{ '\n<think>\n' + m.reasoning_content + '\n</think>' }}"
    "{% endif %}"
    "{% if m.content %}{{ '\n' + m.content }}{% endif %}"
    "{% for c in m.tool_calls %}{{ '\n<tool_call>\n' }}"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
    "{{ '\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA = (
    "{%- for m in messages %}{% if m.tool_calls %}"
    "{% if m.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}"
    "<|start|>assistant<|head|>\n\n"
    '{"name": "{{ m.tool_calls[0].function.name }}", '
    '"parameters": {{ m.tool_calls[0].function.arguments | tojson }}}<|eot|>'
    "{% elif m.role == 'tool' %}<|start|>ipython<|head|>\n\n{{ m.content | tojson }}<|eot|>"
    "{% else %}<|start|>{{ m.role }}<|head|>\n\n"
    "{% if tools and m.role == 'user' and loop.first %}{{ tools | tojson }}\n\n{% endif %}"
    "{{ m.content }}<|eot|>{% endif %}{% endfor -%}"
    "{%- if add_generation_prompt %}<|start|>assistant<|head|>\n\n{% endif %}"
)
MISTRAL = (
    "<s>{%- set users = messages | selectattr('role', 'equalto', 'user') | list %}"
    "{%- for m in messages %}{% if m.role == 'user' %}"
    "{% if tools and m == users[-1] %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]"
    "{% endif %}[INST] {{ m.content }}[/INST]"
    "{% elif m.tool_calls %}[TOOL_CALLS] [{% for c in m.tool_calls %}"
    "{% if c.id is undefined or c.id | length != 9 %}{{ raise_exception('ids of length 9') }}"
    '{% endif %}{"name": "{{ c.function.name }}", "arguments": '
    '{{ c.function.arguments | tojson }}, "id": "{{ c.id }}"}'
    "{% if not loop.last %}, {% endif %}{% endfor %}]</s>"
    "{% elif m.role == 'tool' %}[TOOL_RESULTS] "
    '{"content": {{ m.content | tojson }}, "call_id": "{{ m.tool_call_id }}"}[/TOOL_RESULTS]'
    "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
)


def make_tool_tokenizer(template: str, end: str | None = None) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with the special tokens of the template's family, or another end."""
    ends = {HERMES: "<|im_end|>", LLAMA: "<|eot|>", MISTRAL: "</s>"}
    names = ["<|im_start|>", "<|im_end|>", "<|start|>", "<|head|>", "<|eot|>", "<s>", "</s>",
             "[TOOL_CALLS]", "<|endoftext|>", "[/THINK]"]  # fmt: skip
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=names, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["How many books?"], trainer)
    end = end or ends.get(template, "<|im_end|>")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end)
    fast.chat_template = template
    return fast
