"""Chat templates that drop the thoughts of earlier turns, rewritten: what was sampled stays."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pydantic
import pytest
from chat_tokenizers import HERMES, QWEN_3, make_tokenizer, make_tool_tokenizer
from played_turns import TOOLS, call, play, result
from studied_run import TINY
from transformers import PreTrainedTokenizerFast

from stages.models.chat_template import takes_text_arguments
from stages.models.kept_thoughts import FIRST_WORDS, KEEP, keep_thoughts
from stages.models.model_tokenizer import end_id, load_tokenizer, pin_date, set_thinking
from stages.models.row_policy import ModelConfig, TinyConfig
from stages.models.turn_rendering import TurnRenderer

# As Qwen3 does it: thoughts of the turns after the user's last words alone, and an empty one at the
# end; a switch; and tools. As DeepSeek-R1's distillates, whose template begins no thought.
QWEN = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    + HERMES.replace(
        "{% if m.reasoning_content %}{{ '\n<think>\n' + m.reasoning_content + '\n</think>' }}"
        "{% endif %}",
        "{% if m.role == 'assistant' and loop.index0 > ns.last and (loop.last or"
        " m.reasoning_content) %}{{ '\n<think>\n' + (m.reasoning_content or '') + '\n</think>\n' }}"
        "{% endif %}",
    ).replace(
        "{{ '<|im_start|>assistant\n' }}",
        "{{ '<|im_start|>assistant\n' }}{% if enable_thinking is defined and not enable_thinking %}"
        "{{ '<think>\n\n</think>\n\n' }}{% endif %}",
    )
)
DISTILLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<User>{{ m.content }}{% else %}"
    "<Assistant>{{ m.content.split('</think>')[-1] }}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<Assistant>{% endif %}\n"
)
ASK, MORE = {"role": "user", "content": "How many?"}, {"role": "user", "content": "And 3?"}
FOUR = {"role": "assistant", "content": "Four.", "reasoning_content": "2 + 2."}
PLAIN = {"role": "assistant", "content": "Four."}


def make(name: str) -> PreTrainedTokenizerFast:
    if name in ("r1", "distillate"):
        tokenizer = make_tokenizer("r1")
        tokenizer.chat_template = DISTILLATE if name == "distillate" else tokenizer.chat_template
        return tokenizer
    return make_tool_tokenizer({"qwen": QWEN, "last": QWEN_3}[name])


IM = "<|im_start|>"
TEXTS = {
    "qwen": f"{IM}user\nHow many?<|im_end|>\n{IM}assistant\n<think>\n2 + 2.\n</think>\n\nFour."
            f"<|im_end|>\n{IM}user\nAnd 3?<|im_end|>\n{IM}assistant\n<think>\n2 + 2.\n</think>\n\n"
            f"Four.<|im_end|>\n{IM}user\nHow many?<|im_end|>\n{IM}assistant\n",
    "r1": "<begin><User>How many?<Assistant><think>\n2 + 2.\n</think>\n\nFour.<end><User>And 3?"
          "<Assistant><think>\n2 + 2.\n</think>\n\nFour.<end><User>How many?<Assistant><think>\n",
    "distillate": "<begin><User>How many?<Assistant><think>\n2 + 2.\n</think>\n\nFour.<end><User>"
                  "And 3?<Assistant><think>\n2 + 2.\n</think>\n\nFour.<end><User>How many?"
                  "<Assistant>",
}  # fmt: skip
TEXTS["last"] = TEXTS["qwen"]


def render(tokenizer: Any, *messages: dict[str, Any], is_prompt: bool = True, **more: Any) -> str:
    return tokenizer.apply_chat_template(
        list(messages), add_generation_prompt=is_prompt, tokenize=False, **more
    )


@pytest.mark.parametrize("name", TEXTS)
def test_earlier_turns_are_rendered_as_they_were_sampled(name: str) -> None:
    tokenizer = make(name)
    talk = [ASK, FOUR, MORE, FOUR, ASK]
    assert render(tokenizer, *talk).count("2 + 2.") == 0
    if name != "distillate":  # of which nothing tells that every turn has a thought
        with pytest.raises(ValueError, match=KEEP):
            TurnRenderer(tokenizer).check(None)
    ends = end_id(tokenizer)
    alone = [render(tokenizer, ASK, is_prompt=is_prompt) for is_prompt in (True, False)]
    keep_thoughts(tokenizer)
    # The template is another one on the same object: everything is looked at again.
    TurnRenderer(tokenizer).check(None)
    assert render(tokenizer, *talk) == TEXTS[name]
    in_content = FOUR | {"content": "<think>\n2 + 2.\n</think>\n\nFour.", "reasoning_content": ""}
    assert render(tokenizer, ASK, in_content, MORE, FOUR, ASK) == TEXTS[name]
    ids, read = play(tokenizer, talk, None)
    assert tokenizer.decode(ids) == TEXTS[name]
    assert read == [FOUR, FOUR]
    assert end_id(tokenizer) == ends
    assert [render(tokenizer, ASK, is_prompt=is_prompt) for is_prompt in (True, False)] == alone
    assert (
        render(tokenizer, *talk[:2], is_prompt=False)
        == TEXTS[name][
            : TEXTS[name].index("<User>And" if "<User>" in TEXTS[name] else f"{IM}user\nAnd")
        ]
    )


@pytest.mark.parametrize("name", TEXTS)
def test_a_thought_that_the_answer_repeats_is_kept(name: str) -> None:
    tokenizer = make(name)
    keep_thoughts(tokenizer)
    text = render(tokenizer, ASK, FOUR | {"content": "2 + 2. Four."}, MORE)
    assert "<think>\n2 + 2.\n</think>\n\n2 + 2. Four." in text
    assert text.count("2 + 2.") == 2


def test_calls_and_results_stay_as_they_were_sampled() -> None:
    tokenizer = make("qwen")
    talk = [
        ASK, call(3, 4, content="I add.", reasoning_content="3."), result("3"), result("4", 1),
        call(5), result("5"), FOUR, MORE, call(6, reasoning_content="6."), result("[]"),
    ]  # fmt: skip
    with pytest.raises(ValueError, match=KEEP):
        TurnRenderer(tokenizer).check(TOOLS)
    keep_thoughts(tokenizer)
    TurnRenderer(tokenizer).check(TOOLS)
    ids, read = play(tokenizer, talk, TOOLS)
    assert tokenizer.decode(ids) == render(tokenizer, *talk, tools=TOOLS)
    assert read == [message for message in talk if message["role"] == "assistant"]
    assert render(tokenizer, *talk, tools=TOOLS).count("<think>") == 4  # one of them empty


def test_without_thinking_the_empty_thought_is_of_every_turn() -> None:
    tokenizer = make("qwen")
    keep_thoughts(tokenizer)
    set_thinking(tokenizer, thinking=False)
    TurnRenderer(tokenizer).check(TOOLS)
    empty = "assistant\n<think>\n\n</think>\n\n"
    text = render(tokenizer, ASK, PLAIN, MORE)
    assert text.count(empty) == text.count("<think>") == 2
    thought = render(tokenizer, ASK, FOUR, MORE)  # of a model that thinks all the same
    assert f"{empty}<think>\n2 + 2.\n</think>\n\n" in thought


def test_a_rewritten_template_is_saved_and_stays_as_it_is(tmp_path: Path) -> None:
    tokenizer = make("qwen")
    tokenizer.chat_template = QWEN + "{# strftime_now('%d') #}"
    pin_date(tokenizer)
    keep_thoughts(tokenizer)
    kept = tokenizer.chat_template
    tokenizer.save_pretrained(tmp_path)
    again = load_tokenizer(tmp_path)
    keep_thoughts(again)
    assert again.chat_template == kept
    assert kept.count(FIRST_WORDS) == 1


def test_templates_without_thoughts_are_refused() -> None:
    tokenizer = make_tokenizer("gemma")
    with pytest.raises(ValueError, match="</think>"):
        keep_thoughts(tokenizer)


def make_config(path: str | None, template: str | None) -> ModelConfig:
    return ModelConfig(path=path, revision=None, thinking=None, chat_template=template,
                       tiny=TinyConfig(**TINY))  # fmt: skip


def test_the_parameter_names_the_rewritten_template_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make("qwen").save_pretrained("model")
    file = Path("data/raw/own.jinja")
    file.parent.mkdir(parents=True)
    file.write_text(HERMES, encoding="utf-8")
    assert make_config("model", None).tokenizer([]).chat_template == QWEN
    assert make_config("model", str(file)).tokenizer([]).chat_template == HERMES
    assert FIRST_WORDS in str(make_config("model", KEEP).tokenizer([]).chat_template)
    with pytest.raises(ValueError, match=r"chat_template.*away\.jinja"):
        make_config("model", "data/raw/away.jinja").tokenizer([])
    for path, template in ((None, KEEP), ("model", "own.jinja"), ("model", "keep")):
        with pytest.raises(pydantic.ValidationError, match="chat_template"):
            make_config(path, template)


def test_a_template_that_is_replaced_on_a_tokenizer_is_looked_at_again() -> None:
    tokenizer = make_tool_tokenizer(HERMES)
    assert not takes_text_arguments(tokenizer)
    renderer = TurnRenderer(tokenizer)
    before = renderer.render_new([ASK, PLAIN], [MORE], None)
    tokenizer.chat_template = HERMES.replace("arguments | tojson", "arguments").replace(
        "add_generation_prompt %}{{ '", "add_generation_prompt %}{{ 'Now "
    )
    assert takes_text_arguments(tokenizer)
    after = renderer.render_new([ASK, PLAIN], [MORE], None)
    assert tokenizer.decode(after) == str(tokenizer.decode(before)).replace(
        f"{IM}assistant", f"Now {IM}assistant"
    )
    tokenizer.chat_template = None
    assert tokenizer.decode(renderer.render_new([ASK, PLAIN], [MORE], None)) == "\nAnd 3?\n"


def test_few_of_the_tokenizers_that_were_looked_at_are_held() -> None:
    seen = list[weakref.ref[Any]]()
    for _ in range(12):
        tokenizer = make_tool_tokenizer(HERMES)
        takes_text_arguments(tokenizer)
        seen.append(weakref.ref(tokenizer))
    del tokenizer
    gc.collect()
    assert sum(held() is not None for held in seen) <= 8
