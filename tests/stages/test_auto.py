"""What `auto` becomes: each rule on both sides of its thresholds by hand (auto.yaml), and errors.

No number is read from the rules: a changed rule or threshold fails.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from stages import auto
from stages.auto import RULES, UNMEASURED, Facts
from stages.config import read_yaml

ROOT = Path(__file__).parents[2]
ROWS = YAML(typ="safe").load(Path(__file__).with_name("auto.yaml").read_text(encoding="utf-8"))
MODEL = Facts(
    parameters=10**9, positions=32_768, has_chat_template=True, prompt_tokens=300,
    completion_tokens=410, train_prompts=6128, demonstrations=6128,
)  # fmt: skip
PARAMS = {
    "model": {"path": "a/model"}, "engine": "transformers", "lora": {"rank": 0, "alpha": 16},
    "ppo": {"prompts_per_step": 50}, "grpo": {"prompts_per_step": 40, "max_new_tokens": 104},
    "sampling": {"preference": {"max_new_tokens": 700}, "test": {"max_new_tokens": 900}},
    "data": {"source": {"kind": "gsm8k"}},
}  # fmt: skip
LARGE = {"parameters": 10**10}
GENERATED = {"data": {"source": {"kind": "word_problems"}}}


def resolve_key(key: str, facts: Facts | None = MODEL, **params: Any) -> auto.Resolved:
    """What `auto` at a dotted key becomes."""
    content: Any = "auto"
    for name in reversed(key.split(".")):
        content = {name: content}
    return auto.resolve(content, facts, PARAMS | params)[1][0]


@pytest.mark.parametrize(
    ("key", "facts", "expected"), ROWS, ids=[f"{key} {facts}" for key, facts, _ in ROWS]
)
def test_a_rule_at_its_threshold(key, facts, expected):
    value = resolve_key(key, replace(MODEL, **facts)).value
    assert (value, type(value)) == (expected, type(expected))
    if key.endswith("learning_rate"):
        tenfold = resolve_key(key, replace(MODEL, **facts), lora={"rank": 8, "alpha": 1}).value
        assert tenfold == pytest.approx(10 * value, rel=0.05)  # two digits


def test_every_rule_has_a_row_and_a_value_of_its_kind_for_the_embedded_model():
    keys = {resolve_key(key).pattern: key for key, _, _ in ROWS}
    assert keys.keys() == RULES.keys()
    for key in keys.values():
        embedded = resolve_key(key, None, model={"path": None}, **GENERATED).value
        measured = resolve_key(key, **GENERATED).value
        assert type(embedded) is type(measured), key


def test_the_default_needs_no_facts_and_leaves_no_auto():
    content = read_yaml(ROOT / "params.yaml")
    result, _ = auto.resolve(content, UNMEASURED)
    assert result == auto.resolve(content, None)[0]
    for key in ("compile", "gradient_checkpointing"):  # the device decides
        assert result["compute"].pop(key) == "auto"
    assert "auto" not in json.dumps({key: item for key, item in result.items() if key != "tables"})
    assert result["data"]["mixture"]["max_prompt_tokens"] == 192
    assert resolve_key("data.mixture", **GENERATED).value["max_prompt_tokens"] == 16_384


@pytest.mark.parametrize(
    ("key", "params", "expected"),
    [
        # what follows from a limit follows a number in its place, and an auto in it first
        ("presets.dapo.overlong_buffer", {"grpo": {"max_new_tokens": 100}}, 20),
        ("presets.dapo.overlong_buffer", {"grpo": {"max_new_tokens": 4}}, 1),
        ("presets.dapo.overlong_buffer", {"grpo": {"max_new_tokens": "auto"}}, 166),
        ("presets.judge.judge.max_prompt_tokens",
         {"sampling": {"a": {"max_new_tokens": 64}, "b": {"max_new_tokens": "auto"}}}, 2476),
        ("grpo.num_steps", {"grpo": {"prompts_per_step": "auto"}}, 96),  # 6128 / 64
        ("grpo.optim.learning_rate", {"lora": {"rank": 8, "alpha": 1}}, 5.3e-5),
        ("grpo.optim.learning_rate", {"lora": "auto"}, 5.3e-6),
        ("grpo.optim.learning_rate", {"lora": "auto", "measured": LARGE}, 1e-5),
        ("grpo.optim.learning_rate", {"measured": LARGE}, 1e-6),
    ],
)  # fmt: skip
def test_a_rule_follows_what_it_depends_on(key, params, expected):
    facts = replace(MODEL, **params.get("measured", {}))
    assert resolve_key(key, facts, **params).value == pytest.approx(expected)


@pytest.mark.parametrize(
    "content",
    [{"grpo": {"max_new_tokens": 7, "optim": {"learning_rate": 0.5}}},
     {"presets": {"process": {"step_token": "auto"}, "x": {"correction": "auto"}}}],
)  # fmt: skip
def test_a_number_and_what_is_decided_later_stay(content):
    assert auto.resolve(content, None, PARAMS) == (content, [])


@pytest.mark.parametrize(
    ("content", "facts", "named"),
    [
        ({"grpo": {"temperature": "auto"}}, MODEL, "grpo.temperature"),
        ({"grpo": {"max_new_tokens": "auto"}}, None, "grpo.max_new_tokens: .*prepare_data"),
        ({"grpo": {"num_steps": "auto"}}, MODEL, "grpo.num_steps: .*prompts_per_step"),
        ({"grpo": {"num_steps": "auto", "prompts_per_step": 0}}, MODEL, "grpo.num_steps: .*divi"),
    ],
)
def test_an_auto_without_a_value_is_refused_by_its_key(content, facts, named):
    with pytest.raises(ValueError, match=named):
        auto.resolve(content, facts, {"model": {"path": "a/model"}} | content)
