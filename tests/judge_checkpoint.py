"""A small policy that has learned, for a moment, to answer a judge's message."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from stages.models import model_tokenizer, policy
from stages.rewards.feedback.prompts import judge_message

QUESTION = "Anna has 3 apples. She buys 4 more. How many apples now?"
ANSWERS = ["3 + 4 = 7\n#### 7", "#### 9", "3 - 4 = 1\n#### 1", "#### 12", "4 + 4 = 8\n#### 8"]
MESSAGES = [
    judge_message("short", QUESTION, first, second, None)
    for first in ANSWERS
    for second in ANSWERS
    if first != second
]


@functools.cache
def checkpoint() -> Path:
    """Its folder, tokenizer included; it prefers the answer further up in `ANSWERS`, mostly."""
    path = Path(tempfile.mkdtemp(prefix="tiny-judge-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    torch.set_num_threads(1)
    tokenizer = model_tokenizer.train_tokenizer(MESSAGES, 700)
    pad_id, eos_id = tokenizer.pad_token_id, tokenizer.eos_token_id
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=256, pad_token_id=pad_id,
        eos_token_id=eos_id, bos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    pairs = [(a, b) for a in range(len(ANSWERS)) for b in range(len(ANSWERS)) if a != b]
    rows = [
        [*tokenizer(message)["input_ids"], *tokenizer("1" if a < b else "2")["input_ids"], eos_id]
        for message, (a, b) in zip(MESSAGES, pairs, strict=True)
    ]
    width = max(map(len, rows))
    ids = torch.tensor([row + [pad_id] * (width - len(row)) for row in rows])
    labels = torch.full_like(ids, -100)
    for number, row in enumerate(rows):
        labels[number, len(row) - 2 : len(row)] = ids[number, len(row) - 2 : len(row)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(60):
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    policy.save_model(model.eval(), tokenizer, path)
    return path
