"""A tokenizer of one token a character, so that text given to TRL is token ids of ours."""

from collections.abc import Sequence

from tiny_checkpoints import EOS, PAD, VOCAB
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

LETTERS = "abcdefghijklmnopqrstuvwxyzABCD"
assert len(LETTERS) == VOCAB - 2


def tokenizer(padding: int = PAD) -> PreTrainedTokenizerFast:
    """End of sequence is 1, letters from 2: the vocabulary of `tiny_checkpoints`."""
    letters = {letter: i for i, letter in enumerate(LETTERS, start=2)}
    vocab = {"<pad>": padding, "<eos>": EOS} | letters
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")


def text(token_ids: Sequence[int]) -> str:
    return "".join(["<pad>", "<eos>", *LETTERS][token] for token in token_ids)
