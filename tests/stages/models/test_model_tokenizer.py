import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from stages.models import model_tokenizer, prompting
from stages.models.row_policy import ModelConfig, TinyConfig

TEXTS = [
    "Solve: Anna has 12 apples. She buys 7 more. How many apples does Anna have?\n",
    "12 + 7 = 19\n#### 19",
    "Ben gives away 3 stamps. Then Ben has 2 times as many.\n",
] * 3
WORDS = model_tokenizer.train_tokenizer(TEXTS, 720)


def encode(text):
    return WORDS(text, add_special_tokens=False)["input_ids"]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_survives_encoding_and_decoding(text):
    assert WORDS.decode(encode(text)) == text


@given(st.text("0123456789 \n#+-*=.,aB", max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_of_the_domain_survives_too(text):
    assert WORDS.decode(encode(text)) == text


@pytest.mark.parametrize("space", ["", " "])
def test_every_whole_number_below_200_is_one_token(space):
    for number in range(200):
        assert len(encode(f"{space}{number}")) == 1, number


def test_numbers_are_one_token_within_a_text_too():
    tokens = WORDS.convert_ids_to_tokens(encode("12 + 187 = 199\n#### 199"))
    for number in ("12", "Ġ187", "Ġ199"):
        assert number in tokens
    assert "Ċ" in tokens, "a newline is a token of its own"


def test_a_longer_number_is_split_from_the_left_and_is_no_special_case():
    tokens = WORDS.convert_ids_to_tokens(encode("1234 250"))
    assert tokens == ["123", "4", "Ġ25", "0"]


def test_special_tokens_have_the_first_three_numbers_and_are_never_text():
    assert (WORDS.pad_token_id, WORDS.eos_token_id) == (0, 1)
    assert WORDS.convert_tokens_to_ids(model_tokenizer.STEP) == 2
    assert encode(f"19{model_tokenizer.STEP}") == [*encode("19"), 2]
    assert WORDS.decode([*encode("19"), 1, 0, 0], skip_special_tokens=True) == "19"


def test_frequent_words_are_one_token_and_the_vocabulary_is_not_larger_than_asked():
    assert len(encode(" apples")) == 1
    assert 700 < len(WORDS) <= 720


def test_a_saved_tokenizer_is_the_same_for_transformers(tmp_path):
    WORDS.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    for text in [*TEXTS, "é 漢字 🙂\t x", f"a{model_tokenizer.STEP}b"]:
        assert again(text)["input_ids"] == WORDS(text)["input_ids"]
    assert (again.pad_token_id, again.eos_token_id) == (0, 1)
    assert model_tokenizer.STEP in again.all_special_tokens


def test_training_is_deterministic():
    assert model_tokenizer.train_tokenizer(TEXTS, 720).get_vocab() == WORDS.get_vocab()


def test_a_vocabulary_without_room_for_bytes_and_numbers_is_refused():
    with pytest.raises(ValueError, match=r"vocab_size is 500; .* raise model.tiny.vocab_size"):
        model_tokenizer.train_tokenizer(TEXTS, 500)


TINY = TinyConfig(
    hidden_size=16, num_layers=1, num_heads=2, intermediate_size=32, max_length=64, vocab_size=800
)


def test_without_a_path_the_tokenizer_is_learned_and_can_be_loaded_again(tmp_path):
    learned = ModelConfig(path=None, revision=None, thinking=None, tiny=TINY).tokenizer(
        ["2 + 2 = 4"]
    )
    learned.save_pretrained(tmp_path)
    config = ModelConfig(path=str(tmp_path), revision=None, thinking=None, tiny=TINY)
    assert config.tokenizer([]).get_vocab() == learned.get_vocab()


def test_a_pad_token_is_found_and_a_missing_end_token_is_an_error(tmp_path):
    learned = ModelConfig(path=None, revision=None, thinking=None, tiny=TINY).tokenizer(
        ["2 + 2 = 4"]
    )
    learned.pad_token = None
    learned.save_pretrained(tmp_path / "no-pad")
    loaded = model_tokenizer.load_tokenizer(tmp_path / "no-pad")
    assert loaded.pad_token_id == loaded.eos_token_id
    learned.eos_token = None
    learned.save_pretrained(tmp_path / "no-end")
    with pytest.raises(ValueError, match="no end-of-sequence token"):
        model_tokenizer.load_tokenizer(tmp_path / "no-end")


def test_only_the_tiny_model_limits_the_length_of_rows():
    ModelConfig(path="some/where", revision="1a2b3c", thinking=None, tiny=TINY).check_length(65)
    ModelConfig(path=None, revision=None, thinking=None, tiny=TINY).check_length(64)
    with pytest.raises(ValueError, match="rows of 65 tokens"):
        ModelConfig(path=None, revision=None, thinking=None, tiny=TINY).check_length(65)


def test_a_hub_id_without_its_commit_is_refused():
    with pytest.raises(ValueError, match=r"set model\.revision to a commit"):
        ModelConfig(path="some/where", revision=None, thinking=None, tiny=TINY)


THINKING = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
    "{% if enable_thinking is not defined or enable_thinking %}<think>\n"
    "{% else %}<think>\n\n</think>\n\n{% endif %}"
)


def rendered(folder, thinking: bool | None) -> str:
    config = ModelConfig(path=str(folder), revision=None, thinking=thinking, tiny=TINY)
    config.tokenizer([]).save_pretrained(folder / "policy")
    (text,) = prompting.render_prompts(
        ["Why?"], model_tokenizer.load_tokenizer(folder / "policy"), "{question}"
    )
    return text


def test_thinking_is_switched_wherever_a_policy_s_prompts_are_rendered(tmp_path):
    own = model_tokenizer.train_tokenizer(TEXTS, 720)
    # A newline at the beginning belongs to the template, too.
    own.chat_template = "\n" + THINKING
    own.save_pretrained(tmp_path)
    on, off = "\n<user>Why?<assistant><think>\n", "\n<user>Why?<assistant><think>\n\n</think>\n\n"
    assert rendered(tmp_path, thinking=None) == on
    assert rendered(tmp_path, thinking=True) == on
    assert rendered(tmp_path, thinking=False) == off
    judge = model_tokenizer.load_tokenizer(tmp_path / "policy")
    (ids,) = prompting.tokenize_messages(["Why?"], judge)
    assert judge.decode(ids) == off
    assert rendered(tmp_path / "policy", thinking=True) == on, "of a policy it is switched again"
    again = model_tokenizer.load_tokenizer(tmp_path / "policy/policy")
    assert str(again.chat_template).count("set enable_thinking") == 1


@pytest.mark.parametrize(
    ("template", "found"),
    [(THINKING.partition("{% if")[0], "takes no notice"), (None, "found none")],
)
def test_a_template_without_the_switch_is_refused(tmp_path, template, found):
    own = model_tokenizer.train_tokenizer(TEXTS, 720)
    own.chat_template = template
    own.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=found):
        rendered(tmp_path, thinking=False)
    with pytest.raises(ValueError, match="thinking: null where path is null"):
        ModelConfig(path=None, revision=None, thinking=True, tiny=TINY)
