"""The rules by hand at sizes that are known, their limits, and the table of stages/README.md."""

from dataclasses import replace
from pathlib import Path

import pytest

from stages import auto
from stages.auto import RULES, Facts

README = Path(__file__).parents[2] / "stages/README.md"
QWEN = Facts(
    parameters=494_032_768, positions=32_768, has_chat_template=True,
    prompt_tokens=300, completion_tokens=410, train_prompts=6128, demonstrations=6128,
)  # fmt: skip
PARAMS = {
    "model": {"path": "a/model"}, "lora": "auto", "engine": "auto",
    "ppo": {"prompts_per_step": 64}, "grpo": {"prompts_per_step": "auto", "max_new_tokens": "auto"},
    "sampling": {"preference": {"max_new_tokens": "auto"}, "test": {"max_new_tokens": "auto"}},
    "data": {"source": {"kind": "gsm8k"}},
}  # fmt: skip


def value(key: str, facts: Facts = QWEN, **given: object) -> object:
    """What `auto` is at a dotted key."""
    content: object = "auto"
    for name in reversed(key.split(".")):
        content = {name: content}
    found, _ = auto.resolve(content, facts, PARAMS | given)
    for name in key.split("."):
        found = found[name]
    return found


def table() -> str:
    """Every rule as a row of Markdown."""
    rows = ["| key | embedded | rule | from |", "|---|---|---|---|"]
    for key, rule in RULES.items():
        embedded = "by the rule" if rule.embedded is None else f"`{rule.embedded}`"
        rows.append(f"| `{key}` | {embedded} | {rule.description} | {rule.source} |")
    return "\n".join(rows)


def test_the_readme_shows_every_rule():
    """After a change of the rules: paste what this prints between the two comments."""
    _, _, rest = README.read_text(encoding="utf-8").partition("<!-- auto -->\n")
    shown = rest.partition("\n<!-- end of auto -->")[0]
    assert shown == table(), table()


def test_a_judge_may_read_two_answers_where_positions_are_few():
    few = replace(QWEN, positions=1024, prompt_tokens=300, completion_tokens=450)  # GPT-2's
    assert few.answer_tokens == 633  # 7/8 of 724
    assert value("presets.judge.judge.max_prompt_tokens", few) == 1024 - 256
    assert value("presets.revision.max_prompt_tokens", few) == 1024 - 633


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("engine", "vllm"),
        ("lora", {"rank": 0, "alpha": 32}),
        ("compute.dtype", "bfloat16"),
        ("compute.gradient_checkpointing", False),
        ("compute.max_batch", 64),  # 2^17 / 1132 = 115.8
        ("data.mixture", None),
        ("grpo.max_new_tokens", 832),  # 820 in 64s
        ("presets.revision.max_new_tokens", 832),
        ("studies.search.presets.beam.max_new_tokens", 208),
        ("grpo.num_steps", 96),  # 95.75
        ("grpo.prompts_per_step", 64),
        ("sft.batch_size", 32),  # 61 updates' worth of a hundred
        ("sft.optim.learning_rate", 2.8e-5),  # sqrt(2.024) = 1.423
        ("dpo.optim.learning_rate", 7.1e-7),
        ("presets.mine.optim.learning_rate", 1.4e-5),
        ("presets.dapo.overlong_buffer", 166),
        ("presets.judge.judge.max_prompt_tokens", 300 + 2 * 832 + 512),
        ("presets.judge.style", "full"),
    ],
)
def test_what_half_a_billion_parameters_and_gsm8k_come_to(key: str, expected: object):
    assert value(key) == expected


def test_an_eighth_of_the_room_behind_the_longest_prompt_is_left():
    short = replace(QWEN, positions=1024)
    assert short.answer_tokens == 633  # 724 * 7 / 8
    assert short.row_tokens <= 1024
    assert replace(QWEN, positions=301).answer_tokens == 1


def test_a_model_that_thinks_has_8192_tokens_more_and_no_more_than_there_is_room_for():
    assert replace(QWEN, thinks=True).answer_tokens == 832 + 8192
    assert replace(QWEN, thinks=True, positions=4096).answer_tokens == (4096 - 300) * 7 // 8


def test_what_follows_from_a_limit_follows_a_number_in_its_place():
    numbers = {"grpo": {"max_new_tokens": 100}}
    assert value("presets.dapo.overlong_buffer", **numbers) == 20
    rewarded = "presets.answer_concise.components.overlong.value.buffer"
    assert value(rewarded, **numbers) == 166, "a reward is not made anew for a limit of GRPO's"
    longer = {"sampling": {"preference": {"max_new_tokens": 2000}, "test": {"max_new_tokens": 9}}}
    judge = "presets.judge.judge.max_prompt_tokens"
    assert value(judge, **longer) == 300 + 2 * 2000 + 512
    longer["sampling"]["test"]["max_new_tokens"] = "auto"
    longer["sampling"]["preference"]["max_new_tokens"] = 64
    assert value(judge, **longer) == 300 + 2 * 832 + 512, "auto is an answer"


def test_few_train_prompts_are_a_step_together():
    few = replace(QWEN, train_prompts=40)
    assert value("grpo.prompts_per_step", few) == value("ppo.prompts_per_step", few) == 40
    content = {"grpo": {"prompts_per_step": "auto", "num_steps": "auto", "max_new_tokens": 8}}
    found, _ = auto.resolve(content, few, PARAMS | content)
    assert found["grpo"] == {"prompts_per_step": 40, "num_steps": 1, "max_new_tokens": 8}


def test_rates_have_a_floor_and_adapters_have_ten_times_theirs():
    large = replace(QWEN, parameters=70 * 10**9)
    assert value("lora", large) == {"rank": 32, "alpha": 32}
    assert value("grpo.optim.learning_rate", large) == 5e-6
    whole = {"lora": {"rank": 0, "alpha": 16}}
    assert value("grpo.optim.learning_rate", large, **whole) == 5e-7
    small = replace(QWEN, parameters=1000)
    assert value("sft.optim.learning_rate", small) == 1.5e-3


def test_generated_problems_teach_to_judge():
    source = {"data": {"source": {"kind": "word_problems"}}}
    found = value("data.mixture", **source)
    assert found == {"judge": 0.1, "critique": 0.0, "revise": 0.0, "max_prompt_tokens": 16_384}
