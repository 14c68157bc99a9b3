import json

import pytest
from chat_tokenizers import KINDS, make_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from stages.models import chat_template, model_tokenizer, prompting
from stages.models.row_policy import ModelConfig, TinyConfig
from stages.rewards.final_answer import strip_thinking

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
    trained = model_tokenizer.train_tokenizer(TEXTS, 720)
    # A newline at the beginning belongs to the template, too.
    trained.chat_template = "\n" + THINKING
    trained.save_pretrained(tmp_path)
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


def test_thinking_is_switched_in_each_template_that_has_a_name(tmp_path):
    trained = model_tokenizer.train_tokenizer(TEXTS, 720)
    trained.chat_template = {"default": THINKING, "tool_use": f"{{{{ tools | length }}}}{THINKING}"}
    trained.save_pretrained(tmp_path)
    assert rendered(tmp_path, thinking=False) == "<user>Why?<assistant><think>\n\n</think>\n\n"
    policy = model_tokenizer.load_tokenizer(tmp_path / "policy")
    schema = json.loads(chat_template.TOOLS)[0]
    for thinking, end in ((False, "\n</think>\n\n"), (True, "")):
        model_tokenizer.set_thinking(policy, thinking=thinking)
        text = policy.apply_chat_template(
            model_tokenizer.PROBE, tools=[schema], add_generation_prompt=True, tokenize=False
        )
        assert text == f"1<user>Hi<assistant><think>\n{end}"
    trained.chat_template = {"default": THINKING, "tool_use": "{{ messages[0].content }}"}
    trained.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"found one \(tool_use\) that takes no notice of it"):
        rendered(tmp_path, thinking=False)
    trained.chat_template = {"default": THINKING, "rag": "{{ messages[0].content }}"}
    model_tokenizer.set_thinking(trained, thinking=True)


@pytest.mark.parametrize(
    ("template", "found"),
    [(THINKING.partition("{% if")[0], "takes no notice"), (None, "found none")],
)
def test_a_template_without_the_switch_is_refused(tmp_path, template, found):
    trained = model_tokenizer.train_tokenizer(TEXTS, 720)
    trained.chat_template = template
    trained.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=found):
        rendered(tmp_path, thinking=False)
    with pytest.raises(ValueError, match="thinking: null where path is null"):
        ModelConfig(path=None, revision=None, thinking=True, tiny=TINY)


ENDS = {
    "gemma": "<end_of_turn>", "phi": "<|end|>", "qwen_base": "<|im_end|>", "llama_2": "</s>",
    "llama_3": "<|eot_id|>", "gpt_oss": "<|return|>", "r1": "<end>", "plain": "</s>",
}  # fmt: skip


@pytest.mark.parametrize("kind", ENDS)
def test_a_completion_ends_with_the_templates_end_of_a_turn(kind):
    tokenizer = make_tokenizer(kind)
    end = tokenizer.convert_tokens_to_ids(ENDS[kind])
    assert model_tokenizer.end_id(tokenizer) == end
    assert model_tokenizer.end_ids(tokenizer) == {end, tokenizer.eos_token_id}


def test_the_beginning_of_the_next_turn_is_no_end_of_this_one():
    tokenizer = make_tokenizer("phi")
    turns = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    for template in (turns, turns + "<|assistant|>", turns + "{{ raise_exception('no') }}"):
        tokenizer.chat_template = template
        assert model_tokenizer.end_id(tokenizer) == tokenizer.eos_token_id


def test_of_several_templates_the_default_counts():
    tokenizer = make_tokenizer("gemma")
    tokenizer.chat_template = {"default": tokenizer.chat_template, "tool_use": "{{ messages }}"}
    assert model_tokenizer.end_id(tokenizer) == tokenizer.convert_tokens_to_ids("<end_of_turn>")


def test_the_marks_of_a_thought_are_decoded_and_no_other_special_token():
    r1, gpt_oss = make_tokenizer("r1"), make_tokenizer("gpt_oss")
    text = "<think>\n2 + 2 = 4\n</think>\n\n4"
    ids = r1(f"<begin>{text}<end>", add_special_tokens=False)["input_ids"]
    assert model_tokenizer.make_decode(r1)(ids) == text
    text = "<|channel|>analysis<|message|>2<|end|><|start|>assistant<|channel|>final<|message|>4"
    ids = gpt_oss(f"{text}<|return|>", add_special_tokens=False)["input_ids"]
    decoded = model_tokenizer.make_decode(gpt_oss)(ids)
    assert decoded == "<|channel|>analysis2assistant<|channel|>final4"
    assert strip_thinking(decoded) == "4"


def test_a_policy_that_was_trained_offline_has_the_same_files(tmp_path, monkeypatch):
    make_tokenizer("gemma").save_pretrained(tmp_path / "own")
    files = {}
    for offline in (False, True):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
        folder = tmp_path / f"policy-{offline}"
        model_tokenizer.load_tokenizer(tmp_path / "own").save_pretrained(folder)
        files[offline] = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert files[True] == files[False]


@pytest.mark.parametrize(("kind", "date"), [("llama_3", "26 Jul 2024"), ("gpt_oss", "2024-07-26")])
def test_the_date_of_a_template_is_the_same_every_day(tmp_path, monkeypatch, kind, date):
    make_tokenizer(kind).save_pretrained(tmp_path / "own")
    loaded = model_tokenizer.load_tokenizer(tmp_path / "own")
    model_tokenizer.load_tokenizer(tmp_path / "own").save_pretrained(tmp_path / "policy")
    (text,) = prompting.render_prompts(["Why?"], loaded, "{question}")
    assert date in text
    assert model_tokenizer.has_pinned_date(loaded)
    # as another tool reads it
    policy = AutoTokenizer.from_pretrained(tmp_path / "policy")
    rendered = policy.apply_chat_template(
        [{"role": "user", "content": "Why?"}], add_generation_prompt=True, tokenize=False
    )
    assert rendered == text
    assert model_tokenizer.load_tokenizer(tmp_path / "policy").chat_template == loaded.chat_template


@pytest.mark.parametrize(
    ("date_format", "date"),
    [("%-d %B %Y", "26 July 2024"), ("%x", "07/26/24"), ("%-m/%-d", "7/26")],
)
def test_every_part_of_a_date_is_fixed(date_format, date):
    tokenizer = make_tokenizer("gemma")
    tokenizer.chat_template = "{{ strftime_now('" + date_format + "') }}"
    model_tokenizer.pin_date(tokenizer)
    turns = [{"role": "user", "content": "When?"}]
    assert tokenizer.apply_chat_template(turns, tokenize=False) == date


def test_a_part_of_a_date_that_is_not_fixed_is_refused():
    tokenizer = make_tokenizer("gemma")
    tokenizer.chat_template = "{{ strftime_now('%G-%V') }}"
    with pytest.raises(ValueError, match="%G, %V"):
        model_tokenizer.pin_date(tokenizer)


def test_a_template_that_is_told_the_date_is_left_as_it_is(tmp_path):
    make_tokenizer("gemma").save_pretrained(tmp_path)
    loaded = model_tokenizer.load_tokenizer(tmp_path)
    assert loaded.chat_template == make_tokenizer("gemma").chat_template
    assert not model_tokenizer.has_pinned_date(loaded)


def test_padding_of_a_reward_model_ends_no_completion():
    tokenizer = make_tokenizer("plain")
    assert model_tokenizer.set_separate_pad(tokenizer) == tokenizer.convert_tokens_to_ids("<|pad|>")
    tokenizer.pad_token = "</s>"
    assert model_tokenizer.set_separate_pad(tokenizer) == tokenizer.convert_tokens_to_ids("<|pad|>")
    gpt_2 = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE({"a": 0, "<e>": 1}, [])),
        eos_token="<e>", bos_token="<e>", pad_token="<e>",
    )  # fmt: skip
    assert model_tokenizer.set_separate_pad(gpt_2) == len(gpt_2) - 1 == 2
    gpt_2.unk_token, gpt_2.pad_token = "a", None
    assert model_tokenizer.set_separate_pad(gpt_2) == 2


def test_a_template_that_wants_a_list_of_parts_is_refused_and_no_question_lost(tmp_path):
    """As of models that see images: a text has no parts, so that nothing of it is rendered."""
    tokenizer = make_tokenizer("qwen_base")
    tokenizer.chat_template = (
        "{% for m in messages %}{% for part in m.content %}{% if part.type == 'text' %}"
        "{{ part.text }}{% endif %}{% endfor %}{% endfor %}"
    )
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="chat template renders nothing of the text"):
        model_tokenizer.load_tokenizer(tmp_path)


WRAPPED = (
    "{% for m in messages %}<{{ m.role }}>"
    "{% if m.role == 'assistant' %}<answer>{{ m.content }}TAIL<|end|>"
    "{% else %}{{ m.content }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.mark.parametrize(
    ("tail", "is_refused"), [("</answer>", True), (" .\n", True), ("", False), (" \n", False)]
)
def test_text_that_a_template_writes_behind_a_reply_is_refused(tmp_path, tail, is_refused):
    trained = model_tokenizer.train_tokenizer(TEXTS, 720)
    trained.chat_template = WRAPPED.replace("TAIL", tail)
    trained.save_pretrained(tmp_path)
    if not is_refused:
        assert model_tokenizer.load_tokenizer(tmp_path).chat_template == trained.chat_template
        return
    with pytest.raises(ValueError, match="behind a reply, found ") as error:
        model_tokenizer.load_tokenizer(tmp_path)
    assert f"{tail.strip()!r} before it" in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_templates_of_known_models_write_nothing_there(tmp_path, kind):
    make_tokenizer(kind).save_pretrained(tmp_path)
    assert model_tokenizer.load_tokenizer(tmp_path).chat_template is not None or kind == "plain"
