import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from stages.models import tokenizer as embedded
from stages.models.option_tokens import option_tokens

WORDS = [
    "<eos>",
    "1",
    " 1",
    "(1",
    "1.",
    "**1**",
    "2",
    '"2"',
    "10",
    "12",
    "one",
    "-1",
    "1 2",
    "1<eos>",
]


def word_tokenizer(words: list[str]) -> PreTrainedTokenizerFast:
    vocab = {word: index for index, word in enumerate(words)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(vocab, unk_token="<eos>")), eos_token="<eos>"
    )


def test_every_way_to_write_an_option_is_found_and_nothing_else():
    found = option_tokens(word_tokenizer(WORDS), ("1", "2"))
    assert [[WORDS[i] for i in ids] for ids in found] == [
        ["1", " 1", "(1", "1.", "**1**"],
        ["2", '"2"'],
    ]


def test_the_embedded_tokenizer_has_each_option_with_and_without_a_space():
    tokenizer = embedded.train(["Better:\n1", "Better:\n2"], 700)
    found = option_tokens(tokenizer, ("1", "2"))
    texts = [[str(tokenizer.decode([i])) for i in ids] for ids in found]
    assert [set(option) for option in texts] == [{"1", " 1"}, {"2", " 2"}]


def test_a_special_token_is_no_option():
    tokenizer = word_tokenizer(["<eos>", "1", "2"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["2"]})
    with pytest.raises(ValueError, match=r"found none for \['2'\]"):
        option_tokens(tokenizer, ("1", "2"))
