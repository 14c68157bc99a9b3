"""Chat templates that drop the thoughts of earlier turns, rewritten: what was sampled stays."""

from pathlib import Path

import pydantic
import pytest
from chat_tokenizers import TEMPLATES, make
from played_turns import TOOLS, play
from ruamel.yaml import YAML
from studied_run import TINY

from stages.models.kept_thoughts import FIRST_WORDS, KEEP, keep_thoughts
from stages.models.model_tokenizer import end_id, load_tokenizer, pin_date, set_thinking
from stages.models.row_policy import ModelConfig, TinyConfig
from stages.models.turn_rendering import TurnRenderer

ASK, MORE = {"role": "user", "content": "How many?"}, {"role": "user", "content": "And 3?"}
FOUR = {"role": "assistant", "content": "Four.", "reasoning_content": "2 + 2."}
PLAIN = {"role": "assistant", "content": "Four."}
TEXTS = YAML(typ="safe").load(Path(__file__).with_name("kept_thoughts.yaml"))


def render(tokenizer, *messages, is_prompt=True, **more):
    return tokenizer.apply_chat_template(
        list(messages), add_generation_prompt=is_prompt, tokenize=False, **more
    )


@pytest.mark.parametrize("name", TEXTS)
def test_earlier_turns_are_rendered_as_they_were_sampled(name):
    tokenizer, text, talk = make(name), "".join(TEXTS[name]), [ASK, FOUR, MORE, FOUR, ASK]
    assert render(tokenizer, *talk).count("2 + 2.") == 0
    if name != "distillate":  # of which nothing tells that every turn has a thought
        with pytest.raises(ValueError, match=KEEP):
            TurnRenderer(tokenizer).check(None)
    end = end_id(tokenizer)
    alone = [render(tokenizer, ASK, is_prompt=is_prompt) for is_prompt in (True, False)]
    keep_thoughts(tokenizer)
    # The template is another one on the same object: everything is looked at again.
    TurnRenderer(tokenizer).check(None)
    in_content = PLAIN | {"content": "<think>\n2 + 2.\n</think>\n\nFour.", "reasoning_content": ""}
    for first in (FOUR, in_content):
        assert render(tokenizer, ASK, first, *talk[2:]) == text
    assert render(tokenizer, *talk[:2], is_prompt=False) == TEXTS[name][0]
    assert [render(tokenizer, ASK, is_prompt=is_prompt) for is_prompt in (True, False)] == alone
    assert end_id(tokenizer) == end
    ids, read = play(tokenizer, talk, None)
    assert (tokenizer.decode(ids), read) == (text, [FOUR, FOUR])
    # A thought that the answer repeats is none of it.
    repeated = render(tokenizer, ASK, FOUR | {"content": "2 + 2. Four."}, MORE)
    assert repeated.count("2 + 2.") == 2


def test_without_thinking_the_empty_thought_is_of_every_turn():
    tokenizer = make("tool QWEN")
    keep_thoughts(tokenizer)
    set_thinking(tokenizer, thinking=False)
    TurnRenderer(tokenizer).check(TOOLS)
    empty = "assistant\n<think>\n\n</think>\n\n"
    text = render(tokenizer, ASK, PLAIN, MORE)
    assert text.count(empty) == text.count("<think>") == 2
    thought = render(tokenizer, ASK, FOUR, MORE)  # of a model that thinks all the same
    assert f"{empty}<think>\n2 + 2.\n</think>\n\n" in thought


def test_a_rewritten_template_is_saved_and_stays_as_it_is(tmp_path):
    tokenizer = make("tool QWEN")
    tokenizer.chat_template += "{# strftime_now('%d') #}"
    pin_date(tokenizer)
    keep_thoughts(tokenizer)
    kept = tokenizer.chat_template
    tokenizer.save_pretrained(tmp_path)
    again = load_tokenizer(tmp_path)
    keep_thoughts(again)
    assert again.chat_template == kept
    assert kept.count(FIRST_WORDS) == 1
    with pytest.raises(ValueError, match="</think>"):  # a template without thoughts
        keep_thoughts(make("gemma"))


def test_the_parameter_names_the_rewritten_template_or_a_file(tmp_path, monkeypatch):
    def config(path, template):
        return ModelConfig(path=path, revision=None, thinking=None, chat_template=template,
                           tiny=TinyConfig(**TINY))  # fmt: skip

    def template_of(words):
        return str(config("model", words).tokenizer([]).chat_template)

    monkeypatch.chdir(tmp_path)
    make("tool QWEN").save_pretrained("model")
    file = Path("data/raw/own.jinja")
    file.parent.mkdir(parents=True)
    file.write_text(TEMPLATES["HERMES"], encoding="utf-8")
    assert template_of(None) == TEMPLATES["QWEN"]
    assert template_of(str(file)) == TEMPLATES["HERMES"]
    assert FIRST_WORDS in template_of(KEEP)
    with pytest.raises(ValueError, match=r"chat_template.*away\.jinja"):
        template_of("data/raw/away.jinja")
    for path, template in ((None, KEEP), ("model", "own.jinja"), ("model", "keep")):
        with pytest.raises(pydantic.ValidationError, match="chat_template"):
            config(path, template)
