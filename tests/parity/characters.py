"""A tokenizer of one token a character, so that text given to TRL is token ids of ours."""

from collections.abc import Sequence

from tiny_checkpoints import VOCAB
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

LETTERS = "abcdefghijklmnopqrstuvwxyzABCD"
assert len(LETTERS) == VOCAB - 2


def tokenizer() -> PreTrainedTokenizerFast:
    """Padding is 0, end of sequence 1, letters from 2: the vocabulary of `tiny_checkpoints`."""
    vocab = {"<pad>": 0, "<eos>": 1} | {letter: i for i, letter in enumerate(LETTERS, start=2)}
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")


def text(token_ids: Sequence[int]) -> str:
    return "".join(["<pad>", "<eos>", *LETTERS][token] for token in token_ids)
