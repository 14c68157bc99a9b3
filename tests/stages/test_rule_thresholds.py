"""Every rule on both sides of each of its thresholds, by hand: a changed number fails."""

from dataclasses import replace

import pytest

from stages import auto
from stages.auto import RULES, Facts

MODEL = Facts(
    parameters=10**9, positions=32_768, has_chat_template=True, prompt_tokens=300,
    completion_tokens=410, train_prompts=6128, demonstrations=6128,
)  # fmt: skip
"""An answer is 832 tokens, a row 1132."""
GIVEN = {
    "model": {"path": "a/model"}, "engine": "transformers", "lora": {"rank": 0, "alpha": 16},
    "ppo": {"prompts_per_step": 50}, "grpo": {"prompts_per_step": 40, "max_new_tokens": 104},
    "sampling": {"preference": {"max_new_tokens": 700}, "test": {"max_new_tokens": 900}},
    "data": {"source": {"kind": "gsm8k"}},
}  # fmt: skip
JUDGING = {"judge": 0.1, "critique": 0.0, "revise": 0.0}
Case = tuple[str, dict[str, object], object]
CASES: list[Case] = [
    ("engine", {"parameters": 99_999_999}, "transformers"),
    ("engine", {"parameters": 10**8}, "vllm"),
    ("lora", {"parameters": 2 * 10**9}, {"rank": 0, "alpha": 32}),
    ("lora", {"parameters": 2 * 10**9 + 1}, {"rank": 32, "alpha": 32}),
    ("compute.dtype", {"parameters": 49_999_999}, "float32"),
    ("compute.dtype", {"parameters": 5 * 10**7}, "bfloat16"),
    ("compute.gradient_checkpointing", {"parameters": 10**9 - 1}, False),
    ("compute.gradient_checkpointing", {}, True),
    ("compute.max_tokens", {}, 8192),
    ("compute.max_tokens", {"thinks": True}, 300 + 832 + 8192),
    ("compute.row_tokens", {}, 2048),
    ("compute.row_tokens", {"positions": 2047}, 2047),
    ("compute.pack_tokens", {"parameters": 49_999_999}, 128),
    ("compute.pack_tokens", {"parameters": 5 * 10**7}, 0),
    ("compute.max_batch", {}, 64),  # 2^17 / 1132 = 115.8
    ("compute.max_batch", {"positions": 50, "prompt_tokens": 20}, 1024),  # 2^17 / 46 = 2849
    ("compute.max_batch", {"thinks": True}, 16),  # 2^17 / 9324 = 14.06
    ("data.mixture", {}, None),
    ("data.mixture.max_prompt_tokens", {"positions": 1025}, 512),
    ("data.max_prompt_tokens", {"positions": 1025}, 512),
    ("data.max_completion_tokens", {"positions": 1025}, 513),
    ("studies.search.presets.beam.max_new_tokens", {}, 208),
    ("grpo.max_new_tokens", {"completion_tokens": 128}, 256),
    ("grpo.max_new_tokens", {"completion_tokens": 129}, 320),
    ("grpo.max_new_tokens", {}, 832),
    ("grpo.max_new_tokens", {"thinks": True}, 832 + 8192),
    ("grpo.max_new_tokens", {"positions": 700}, 350),  # 400 * 7 / 8
    ("sft.batch_size", {"demonstrations": 1}, 8),
    ("sft.batch_size", {"demonstrations": 1599}, 8),
    ("sft.batch_size", {"demonstrations": 1600}, 16),
    ("sft.batch_size", {"demonstrations": 12_799}, 64),
    ("sft.batch_size", {"demonstrations": 12_800}, 128),
    ("sft.batch_size", {"demonstrations": 10**6}, 128),
    ("grpo.prompts_per_step", {"train_prompts": 63}, 63),
    ("grpo.prompts_per_step", {"train_prompts": 65}, 64),
    ("ppo.num_steps", {"train_prompts": 9950}, 199),
    ("ppo.num_steps", {"train_prompts": 10_001}, 200),
    ("grpo.num_steps", {"train_prompts": 7921}, 199),
    ("grpo.num_steps", {"train_prompts": 8001}, 200),
    ("presets.dapo.overlong_buffer", {}, 20),
    ("presets.answer.components.overlong.value.buffer", {}, 166),
    ("presets.answer.components.length.value.per", {}, 832),
    ("presets.answer.components.length.value.target", {}, 205),
    ("presets.revision.max_prompt_tokens", {}, 300 + 2 * 900 + 512),
    ("presets.revision.max_prompt_tokens", {"positions": 3000}, 3000 - 832),
    ("presets.judge.judge.max_prompt_tokens", {}, 300 + 2 * 900 + 512),
    ("presets.judge.judge.max_prompt_tokens", {"positions": 2000}, 2000 - 256),
    ("presets.judge.judge.max_prompt_tokens", {"positions": 2800}, 2450),  # 7 / 8
    ("presets.judge.rule.min_option_mass", {}, 0.0),
    ("presets.judge.style", {}, "full"),
    ("presets.judge.style", {"has_chat_template": False}, "short"),
    *(
        (f"{key}.max_tokens", {"positions": positions}, min(positions, 8192))
        for key in ("presets.prm800k", "presets.math_shepherd", "presets.math_aps",
                    "presets.processbench", "studies.probes")
        for positions in (8191, 8193)
    ),
]  # fmt: skip
RATES = {
    "sft.optim.learning_rate": (2e-5, 1.5e-3),
    "dpo.optim.learning_rate": (5e-7, 1e-4),
    "ppo.optim.learning_rate": (1e-6, 5e-5),
    "ppo.value_optim.learning_rate": (5e-6, 3e-4),
    "grpo.optim.learning_rate": (1e-6, 2e-4),
    "presets.cold_start.learning_rate": (2e-5, 3e-4),
    "presets.rejection_sampling.learning_rate": (2e-5, 5e-4),
    "presets.pretraining.learning_rate": (2e-5, 1.5e-3),
    "presets.process.optim.learning_rate": (1e-5, 1e-3),
    "presets.mine.optim.learning_rate": (1e-5, 5e-4),
    "presets.mine.learning_rate": (2e-5, 5e-4),
}
"""At a billion parameters, and of the smallest models."""


def resolved(key: str, facts: Facts, **given: object) -> auto.Resolved:
    """What `auto` at a dotted key becomes."""
    content: object = "auto"
    for name in reversed(key.split(".")):
        content = {name: content}
    assert isinstance(content, dict)
    return auto.resolve(content, facts, GIVEN | given)[1][0]


@pytest.mark.parametrize(("key", "facts", "expected"), CASES)
def test_a_rule_at_its_threshold(key: str, facts: dict[str, object], expected: object):
    assert resolved(key, replace(MODEL, **facts)).value == expected


@pytest.mark.parametrize("key", RATES)
def test_a_rate_at_a_billion_its_slope_floor_and_ceiling(key: str):
    at_1b, embedded = RATES[key]

    def rate(parameters: int, rank: int = 0) -> object:
        lora = {"rank": rank, "alpha": 16}
        return resolved(key, replace(MODEL, parameters=parameters), lora=lora).value

    assert rate(10**9) == at_1b
    assert rate(10**9 * 100 // 144) == pytest.approx(1.2 * at_1b)
    assert rate(4 * 10**9) == rate(10**12) == at_1b / 2
    assert rate(1) == embedded
    assert rate(10**9, rank=8) == pytest.approx(10 * at_1b)


def test_generated_problems_teach_to_judge_with_half_of_the_positions():
    found = resolved("data.mixture", MODEL, data={"source": {"kind": "word_problems"}})
    assert found.value == JUDGING | {"max_prompt_tokens": 16_384}
    embedded = resolved("data.mixture", MODEL, model={"path": None},
                        data={"source": {"kind": "word_problems"}})  # fmt: skip
    assert embedded.value == JUDGING | {"max_prompt_tokens": 192}


def test_every_rule_is_tried():
    tried = {resolved(key, MODEL).pattern for key in (*RATES, *(case[0] for case in CASES))}
    assert tried == set(RULES)
