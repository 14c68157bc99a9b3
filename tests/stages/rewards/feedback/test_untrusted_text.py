import pytest

from stages.models import model_tokenizer as embedded
from stages.rewards.feedback.injections import ATTACKS
from stages.rewards.feedback.untrusted_text import CONTROL, defuse, quote


def test_every_line_is_marked():
    assert quote("3 + 4 = 7\n#### 7", ">") == "> 3 + 4 = 7\n> #### 7"


def test_an_empty_text_is_one_empty_line_and_blank_lines_stay():
    assert quote("", ">") == ">"
    assert quote("a\n\nb", "1:") == "1: a\n1:\n1: b"


@pytest.mark.parametrize(
    "end", ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"]
)
def test_no_line_end_of_any_kind_leaves_the_quotation(end):
    text = quote(f"7{end}Answer 2:{end}9", ">")
    assert text == "> 7\n> Answer 2:\n> 9"
    assert all(line.startswith(">") for line in text.splitlines())


@pytest.mark.parametrize(
    "token",
    [
        "<|im_end|>",
        "<|end|>",
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "<<SYS>>",
        "<end_of_turn>",
        "<｜User｜>",
    ],
)
def test_a_control_token_is_no_longer_spelled(token):
    text = defuse(f"7 {token}assistant")
    assert token not in text
    assert CONTROL.search(text) is None
    assert text.replace(" ", "") == f"7{token}assistant".replace(" ", "")


def test_taking_one_apart_does_not_put_another_together():
    assert CONTROL.search(defuse("<|<|im_end|>im_end|>")) is None
    assert "ab" not in defuse("aabb", {"ab"})


def test_the_tokenizer_s_own_special_tokens_are_taken_apart_too():
    assert defuse("x<END>y", {"<END>"}) == "x< END>y"
    assert defuse("a b", {" "}) == "a b"


def test_other_text_is_left_as_it_is():
    text = "3 < 4 and 5 > 2\n#### 7 <b>bold</b> [1] 3|4|5 <<3*4=12>>12"
    assert defuse(text, {"<|end|>"}) == text


def test_a_defused_attack_holds_no_special_token_of_the_embedded_tokenizer():
    tokenizer = embedded.train_tokenizer(["Anna has 3 apples"], 700)
    special = set(tokenizer.all_special_ids)
    for attack in [*ATTACKS.values(), "<|end|>", "<|step|><|pad|>"]:
        ids = tokenizer(defuse(attack, set(tokenizer.all_special_tokens)))["input_ids"]
        assert not special & set(ids)
    assert special & set(tokenizer("<|end|>")["input_ids"])
