"""Steps of a completion at token granularity."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.models import model_tokenizer as tokenizers
from stages.models.policy import decoder
from stages.rewards.steps import split_steps

VOCAB = ["", "a", "b", "\n", "\n\n", ".\n\n", "\nb", " ", "\n\nSo"]
END = 0


def decode(ids):
    return "".join(VOCAB[i] for i in ids)


@pytest.mark.parametrize(
    ("ids", "separator", "expected"),
    [
        ([1, 3, 2, END], "\n", [[1, 3], [2, END]]),
        ([1, 3, 2, 3, END], "\n", [[1, 3], [2, 3, END]]),  # the end alone is no step
        ([1, 3, 3, 2], "\n", [[1, 3, 3], [2]]),  # a blank line joins the step before
        ([1, 3, 7, 3, 2], "\n", [[1, 3, 7, 3], [2]]),
        ([3, 3, 1, 2, 3, 2], "\n", [[3, 3, 1, 2, 3], [2]]),  # at the start, the one that follows
        ([1, 3, 2], "\n\n", [[1, 3, 2]]),
        ([1, 3, 3, 2], "\n\n", [[1, 3, 3], [2]]),  # completed by the second token
        ([1, 4, 2], "\n", [[1, 4], [2]]),
        ([1, 5, 2], "\n\n", [[1, 5], [2]]),
        ([1, 6, 2], "\n", [[1, 6], [2]]),  # a token that goes on beyond it is not cut
        ([1, 8, 2], "\n\n", [[1, 8], [2]]),
        ([3, END], "\n", [[3, END]]),  # nothing but white space: one step
        ([END], "\n", [[END]]),
        ([], "\n", []),
    ],
)
def test_a_step_ends_with_the_token_that_completes_the_separator(ids, separator, expected):
    assert split_steps(ids, decode, separator) == expected


@given(st.lists(st.integers(0, len(VOCAB) - 1)), st.sampled_from(["\n", "\n\n", "a"]))
def test_the_steps_joined_are_the_completion_and_none_is_empty(ids, separator):
    steps = split_steps(ids, decode, separator)
    assert [i for step in steps for i in step] == ids
    assert all(steps)
    # Only a completion without any text has a step without text.
    assert all(decode(step).strip() for step in steps) or len(steps) == 1


def test_lines_of_the_embedded_tokenizer():
    tokenizer = tokenizers.train_tokenizer(["3 + 4 = 7\n7 * 2 = 14\n#### 14"], 700)
    decode = decoder(tokenizer)
    ids = tokenizer("3 + 4 = 7\n7 * 2 = 14\n#### 14")["input_ids"] + [tokenizer.eos_token_id]
    steps = split_steps(ids, decode, "\n")
    assert [decode(step) for step in steps] == ["3 + 4 = 7\n", "7 * 2 = 14\n", "#### 14"]
    assert steps[-1][-1] == tokenizer.eos_token_id


def test_an_empty_separator_is_refused():
    with pytest.raises(ValueError, match="separator"):
        split_steps([1], decode, "")
