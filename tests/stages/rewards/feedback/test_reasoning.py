"""Where a judge's prompts end, the option is the very next token, whatever the tokenizer."""

import functools

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from stages.models import prompting
from stages.models.policy_chooser import option_tokens
from stages.rewards.feedback import reasoning
from stages.rewards.feedback.judge_prompt import OPTIONS, STYLES, judge_message

ENDS = [judge_message(style, "3 + 4?", "#### 7", "#### 9", None) for style in STYLES]
ENDS += [f"{ENDS[-1]}{reasoning.REQUEST}The first adds right.{reasoning.CUE}"]
SPLITS = {
    # As Qwen's and Llama 3's: a digit never keeps the space before it.
    "digits apart": r"\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+",
    # As GPT-2's: it does.
    "with the space": r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
}


@functools.cache
def tokenizer(split: str) -> PreTrainedTokenizerFast:
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLITS[split]), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    trained.train_from_iterator([*ENDS, " 1 2 1 2 1 2"] * 2, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=trained, eos_token="<end>")


def written(text: str, option: str) -> str:
    """`text` with the option after it, as a writer would set it: after a word comes a space."""
    return text + option if text[-1].isspace() else f"{text} {option}"


@pytest.mark.parametrize("split", SPLITS)
def test_the_tokenizers_differ_in_the_space_before_a_digit(split):
    (ids,) = prompting.ids([" 1"], tokenizer(split))
    assert len(ids) == {"digits apart": 2, "with the space": 1}[split]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("split", SPLITS)
def test_the_option_is_the_next_token(split, end, option):
    judge = tokenizer(split)
    before, after = prompting.ids([end, written(end, option)], judge)
    assert after[:-1] == before
    assert after[-1] in option_tokens(judge, OPTIONS)[OPTIONS.index(option)]


def test_after_a_word_it_would_not_be():
    before, after = prompting.ids(["number", written("number", "1")], tokenizer("digits apart"))
    assert len(after) == len(before) + 2
