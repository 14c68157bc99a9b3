"""Tokenizers: the trained one, and what is read from those of models: ends, padding, switches."""

import json
from pathlib import Path

import pytest
from chat_tokenizers import KINDS, make, make_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from tokenizers import AddedToken, Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from stages.models import chat_template, model_tokenizer, process_head, prompting
from stages.models.model_tokenizer import PROBE, end_id, load_tokenizer, train_tokenizer
from stages.models.policy_judge import option_tokens
from stages.models.row_policy import ModelConfig, TinyConfig
from stages.rewards.final_answer import strip_thinking

TEXTS = [
    "Solve: Anna has 12 apples. She buys 7 more. How many apples does Anna have?\n",
    "12 + 7 = 19\n#### 19",
    "Ben gives away 3 stamps. Then Ben has 2 times as many.\n",
] * 3
WORDS = train_tokenizer(TEXTS, 720)
TINY = TinyConfig(hidden_size=16, num_layers=1, num_heads=2, intermediate_size=32, max_length=64,
                  vocab_size=800)  # fmt: skip
TABLES = YAML(typ="safe").load(Path(__file__).with_name("tokenizers.yaml"))


def encode(text, tokenizer=WORDS):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
    | st.text("0123456789 \n#+-*=.,aB", max_size=40)
)
@settings(max_examples=300, deadline=None)
def test_any_text_survives_encoding_and_decoding(text):
    assert WORDS.decode(encode(text)) == text


@pytest.mark.parametrize("text", TABLES["splits"])
def test_numbers_and_newlines_are_tokens_of_their_own(text):
    tokens, expected = WORDS.convert_ids_to_tokens(encode(text)), TABLES["splits"][text]
    shown = [part for token in tokens for part in ([token[0], token[1:]] if token in ("Ġ+", "Ġ=")
                                                   else [token])]  # fmt: skip
    assert shown[: len(expected)] == expected


def test_a_trained_tokenizer_has_its_special_tokens_bytes_and_numbers_first(tmp_path):
    assert {len(encode(f"{space}{i}")) for space in ("", " ") for i in range(200)} == {1}
    assert WORDS.convert_tokens_to_ids(["<|pad|>", "<|end|>", "<|step|>"]) == [0, 1, 2]
    assert (WORDS.pad_token_id, WORDS.eos_token_id) == (0, 1)
    assert process_head.step_token_id(WORDS, "auto") == 2
    assert WORDS.decode([*encode("19"), 1, 0, 0], skip_special_tokens=True) == "19"
    assert 700 < len(WORDS) <= 720
    assert train_tokenizer(TEXTS, 720).get_vocab() == WORDS.get_vocab()
    with pytest.raises(ValueError, match=r"500.*model\.tiny\.vocab_size"):
        train_tokenizer(TEXTS, 500)
    WORDS.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    for text in [*TEXTS, "é 漢字 🙂\t x", "a<|step|>b"]:
        assert again(text)["input_ids"] == WORDS(text)["input_ids"]
    assert (again.pad_token_id, again.eos_token_id) == (0, 1)
    assert "<|step|>" in again.all_special_tokens


def config(path, thinking=None):
    return ModelConfig(path=path and str(path), revision=None, thinking=thinking, tiny=TINY)


@pytest.mark.parametrize("name", TABLES["loaded"])
def test_a_template_that_loses_texts_or_adds_some_is_refused(name, tmp_path):
    template, refused = TABLES["loaded"][name]
    trained = train_tokenizer(TEXTS, 720)
    trained.chat_template = template
    trained.save_pretrained(tmp_path)
    if refused is None:
        assert load_tokenizer(tmp_path).chat_template == template
    else:
        with pytest.raises(ValueError) as error:
            load_tokenizer(tmp_path)
        assert refused in str(error.value)


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_is_saved_as_it_was_read(kind, offline, tmp_path, monkeypatch):
    make_tokenizer(kind).save_pretrained(tmp_path / "own")
    load_tokenizer(tmp_path / "own").save_pretrained(tmp_path / "policy")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    loaded = load_tokenizer(tmp_path / "own")
    loaded.save_pretrained(tmp_path / "again")
    for path in (tmp_path / "policy").iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
    is_dated = kind in ("llama_3", "gpt_oss")
    assert model_tokenizer.has_pinned_date(loaded) == is_dated
    assert is_dated or loaded.chat_template == KINDS[kind][0]
    assert load_tokenizer(tmp_path / "again").chat_template == loaded.chat_template
    if loaded.chat_template:  # as another tool reads it: the same date every day
        (text,) = prompting.render_prompts(["Hi"], loaded, "{question}")
        other = AutoTokenizer.from_pretrained(tmp_path / "policy")
        rendered = other.apply_chat_template(PROBE, add_generation_prompt=True, tokenize=False)
        assert rendered == text


@pytest.mark.parametrize(
    ("form", "date"),
    [("%-d %B %Y", "26 July 2024"), ("%x", "07/26/24"), ("%-m/%-d", "7/26"), (r"%e\n%m", "26\n07")],
)
def test_every_part_of_a_date_is_fixed(form, date):
    tokenizer = make_tokenizer("gemma")
    tokenizer.chat_template = {"default": f"{{{{ strftime_now ('{form}') }}}}", "rag": "{{ x }}"}
    model_tokenizer.pin_date(tokenizer)
    assert tokenizer.apply_chat_template(PROBE, tokenize=False) == date


@pytest.mark.parametrize("name", TABLES["ends"])
def test_the_end_of_a_completion_is_that_of_a_turn_or_of_a_sequence(name):
    template, end = TABLES["ends"][name]
    tokenizer = make_tokenizer("phi")
    tokenizer.add_tokens([AddedToken("<|end|><|user|>", special=True)], special_tokens=True)
    tokenizer.chat_template = template
    assert tokenizer.convert_ids_to_tokens(end_id(tokenizer)) == end


def test_a_missing_padding_token_is_the_end_and_a_missing_end_is_refused(tmp_path):
    trained = train_tokenizer(["2 + 2 = 4"], 700)
    trained.pad_token = None
    assert model_tokenizer.pad_id(trained) == trained.eos_token_id
    trained.save_pretrained(tmp_path / "no-pad")
    loaded = load_tokenizer(tmp_path / "no-pad")
    assert loaded.pad_token_id == loaded.eos_token_id
    trained.eos_token = None
    trained.save_pretrained(tmp_path / "no-end")
    with pytest.raises(ValueError, match="eos_token"):
        load_tokenizer(tmp_path / "no-end")


def test_padding_of_a_reward_model_ends_no_completion():
    tokenizer = make_tokenizer("plain")
    pad = tokenizer.convert_tokens_to_ids("<|pad|>")
    for token in (tokenizer.pad_token, "</s>"):
        tokenizer.pad_token = token
        assert model_tokenizer.set_separate_pad(tokenizer) == pad
    inner = Tokenizer(models.BPE({"a": 0, "<e>": 1}, []))
    gpt_2 = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<e>", bos_token="<e>",
                                    pad_token="<e>")  # fmt: skip
    assert model_tokenizer.set_separate_pad(gpt_2) == len(gpt_2) - 1 == 2
    gpt_2.unk_token, gpt_2.pad_token = "a", None
    assert model_tokenizer.set_separate_pad(gpt_2) == 2


def test_marks_of_a_thought_are_decoded_and_no_other_special_token():
    r1, gpt_oss = make("r1"), make("gpt_oss")
    text = "<think>\n2 + 2 = 4\n</think>\n\n4"
    ids = encode(f"<begin>{text}<end>", r1)
    assert model_tokenizer.make_decode(r1)(ids) == text
    assert model_tokenizer.make_decode(r1, "<end>")(ids) == f"{text}<end>"
    text = "<|channel|>analysis<|message|>2<|end|><|start|>assistant<|channel|>final<|message|>4"
    decoded = model_tokenizer.make_decode(gpt_oss)(encode(f"{text}<|return|>", gpt_oss))
    assert decoded == "<|channel|>analysis2assistant<|channel|>final4"
    assert strip_thinking(decoded) == "4"


ON, OFF = "\n<user>Hi<assistant><think>\n", "\n<user>Hi<assistant><think>\n\n</think>\n\n"


@pytest.mark.parametrize("name", TABLES["switches"])
def test_thinking_is_switched_in_the_template_wherever_prompts_are_rendered(name, tmp_path):
    template, refused = TABLES["switches"][name]
    tokenizer = train_tokenizer(TEXTS, 720)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(tmp_path / "policy-None")
    if refused is not None:
        with pytest.raises(ValueError, match=refused):
            config(tmp_path / "policy-None", thinking=False).tokenizer([])
        return
    # Of a policy it is switched again.
    for before, thinking, expected in ((None, None, ON), (None, False, OFF), (False, True, ON)):
        policy = config(tmp_path / f"policy-{before}", thinking).tokenizer([])
        policy.save_pretrained(tmp_path / f"policy-{thinking}")
        loaded = load_tokenizer(tmp_path / f"policy-{thinking}")
        assert prompting.render_prompts(["Hi"], loaded, "{question}") == [expected]
        (ids,) = prompting.tokenize_messages(["Hi"], loaded)
        assert loaded.decode(ids) == expected
        if name == "each":
            tools = json.loads(chat_template.TOOLS)
            text = loaded.apply_chat_template(PROBE, tools=tools, add_generation_prompt=True,
                                              tokenize=False)  # fmt: skip
            assert text == f"1{expected}"
    assert str(loaded.chat_template).count("set enable_thinking") == 1 + (name != "one")


def make_words(words, special=(), template=None):
    """A tokenizer of these words; special ones are added as real ones are, by no name of a role."""
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, words[0]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>")
    tokenizer.add_tokens([AddedToken(name, special=True) for name in special], special_tokens=True)
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize(("names", "template", "chosen"), TABLES["steps"])
def test_a_step_token_is_a_free_special_token_or_the_end(names, template, chosen):
    tokenizer = make_words(["a", "b"], names, template)
    expected = tokenizer.convert_tokens_to_ids(chosen)
    assert process_head.step_token_id(tokenizer, "auto") == expected
    if chosen != "<eos>":
        assert process_head.step_token_id(tokenizer, chosen) == expected
    for used in ("<eos>", "b", "ки", "", *([names[0]] if template else [])):
        with pytest.raises(ValueError, match="free: " + (r"\[\]" if chosen == "<eos>" else "")):
            process_head.step_token_id(tokenizer, used)


def test_every_spelling_of_an_option_is_one_and_nothing_else():
    words = ["<eos>", "1", " 1", "(1", "1.", "**1**", "2", '"2"', "10", "12", "one", "-1", "1 2",
             "1<eos>"]  # fmt: skip
    ids = option_tokens(make_words(words), ("1", "2"))
    shown = [[words[i] for i in option] for option in ids]
    assert shown == [["1", " 1", "(1", "1.", "**1**"], ["2", '"2"']]
    tokenizer = make_words(["<eos>", "1", "2"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["2"]})
    with pytest.raises(ValueError, match=r"\['2'\]"):  # a special token is none
        option_tokens(tokenizer, ("1", "2"))


def test_a_teacher_has_the_vocabulary_of_its_student():
    model_tokenizer.check_same_vocabulary(WORDS, train_tokenizer(TEXTS, 720), ("a", "b"))
    for special in (False, True):
        other = train_tokenizer(TEXTS, 720)
        other.add_tokens(["more"], special_tokens=special)
        for pair in ((WORDS, other), (other, WORDS)):
            with pytest.raises(ValueError, match=r"student a and teacher b.*1 tokens"):
                model_tokenizer.check_same_vocabulary(*pair, ("a", "b"))
