"""Every rule on both sides of each of its thresholds by hand, how `auto` is replaced, and errors.

No number here is read from the rules: a changed rule, threshold or embedded value fails.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from stages import auto
from stages.auto import RULES, Facts
from stages.config import PRESETS_PATH, read_yaml
from stages.params import FACTS_PATH, pick_presets, print_table, read_facts

ROOT = Path(__file__).parents[2]
GIVEN = {"model": {"path": "a/model"}}
MODEL = Facts(
    parameters=10**9, positions=32_768, has_chat_template=True, prompt_tokens=300,
    completion_tokens=410, train_prompts=6128, demonstrations=6128,
)  # fmt: skip
"""An answer is 832 tokens, a row 1132."""
PARAMS = {
    "model": {"path": "a/model"}, "engine": "transformers", "lora": {"rank": 0, "alpha": 16},
    "ppo": {"prompts_per_step": 50}, "grpo": {"prompts_per_step": 40, "max_new_tokens": 104},
    "sampling": {"preference": {"max_new_tokens": 700}, "test": {"max_new_tokens": 900}},
    "data": {"source": {"kind": "gsm8k"}},
}  # fmt: skip
JUDGING = {"judge": 0.1, "critique": 0.0, "revise": 0.0}
WORD_PROBLEMS = {"data": {"source": {"kind": "word_problems"}}}
EMBEDDED = {
    "engine": "transformers", "lora": {"rank": 0, "alpha": 16}, "compute.dtype": "float32",
    "compute.gradient_checkpointing": False, "compute.max_tokens": 4096,
    "compute.row_tokens": 512, "compute.pack_tokens": 128, "compute.max_batch": 1024,
    "data.mixture": JUDGING | {"max_prompt_tokens": 192}, "data.mixture.max_prompt_tokens": 192,
    "data.max_prompt_tokens": 96, "data.max_completion_tokens": 64,
    "studies.search.presets.beam.max_new_tokens": 16, "grpo.max_new_tokens": 32,
    "sft.batch_size": 8, "grpo.prompts_per_step": 64, "ppo.num_steps": 12, "grpo.num_steps": 32,
    "sft.optim.learning_rate": 1.5e-3, "dpo.optim.learning_rate": 1e-4,
    "ppo.optim.learning_rate": 5e-5, "ppo.value_optim.learning_rate": 3e-4,
    "grpo.optim.learning_rate": 2e-4, "presets.cold_start.learning_rate": 3e-4,
    "presets.rejection_sampling.learning_rate": 5e-4, "presets.pretraining.learning_rate": 1.5e-3,
    "presets.process.optim.learning_rate": 1e-3, "presets.mine.optim.learning_rate": 5e-4,
    "presets.mine.learning_rate": 5e-4, "presets.dapo.overlong_buffer": 8,
    "presets.mine.components.overlong.value.buffer": 8,
    "presets.mine.components.length.value.per": 32,
    "presets.mine.components.length.value.target": 16, "presets.revision.max_prompt_tokens": 192,
    "presets.judge.judge.max_prompt_tokens": 240, "presets.judge.rule.min_option_mass": 0.5,
    "presets.judge.style": "short", "presets.prm800k.max_tokens": 2048,
    "presets.math_shepherd.max_tokens": 2048, "presets.math_aps.max_tokens": 4096,
    "presets.processbench.max_tokens": 8192, "studies.probes.max_tokens": 256,
}  # fmt: skip
"""With `model.path: null`, and problems that are generated."""
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
    ("studies.search.presets.beam.max_new_tokens", {"positions": 303}, 1),  # 2 // 4
    ("presets.answer.components.overlong.value.buffer", {"positions": 303}, 1),
    ("presets.answer.components.length.value.target", {"completion_tokens": 1}, 1),
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
    "ppo.optim.learning_rate": (1e-6, 5e-5),
    "ppo.value_optim.learning_rate": (5e-6, 3e-4),
    "presets.cold_start.learning_rate": (2e-5, 3e-4),
    "presets.rejection_sampling.learning_rate": (2e-5, 5e-4),
    "presets.pretraining.learning_rate": (2e-5, 1.5e-3),
    "presets.process.optim.learning_rate": (1e-5, 1e-3),
    "presets.mine.optim.learning_rate": (1e-5, 5e-4),
    "presets.mine.learning_rate": (2e-5, 5e-4),
}
"""At a billion parameters, and of the smallest models."""


def resolve_key(key: str, facts: Facts | None = MODEL, **params: object) -> auto.Resolved:
    """What `auto` at a dotted key becomes."""
    content: object = "auto"
    for name in reversed(key.split(".")):
        content = {name: content}
    assert isinstance(content, dict)
    return auto.resolve(content, facts, PARAMS | params)[1][0]


@pytest.mark.parametrize("key", EMBEDDED)
def test_the_embedded_model_has_its_own_value(key: str):
    result = resolve_key(key, None, model={"path": None}, **WORD_PROBLEMS)
    assert result.value == EMBEDDED[key]
    assert type(result.value) is type(EMBEDDED[key])


@pytest.mark.parametrize(("key", "facts", "expected"), CASES)
def test_a_rule_at_its_threshold(key: str, facts: dict[str, object], expected: object):
    assert resolve_key(key, replace(MODEL, **facts)).value == expected


@pytest.mark.parametrize(
    ("key", "known"), [("dpo", (1e-4, 1e-5, 5e-7)), ("grpo", (2e-4, 3e-5, 1e-6))]
)
def test_a_rate_between_sizes_at_which_it_is_known(key: str, known: tuple[float, float, float]):
    def rate(parameters: float, rank: int = 0) -> float:
        lora = {"rank": rank, "alpha": 16}
        facts = replace(MODEL, parameters=int(parameters))
        return resolve_key(f"{key}.optim.learning_rate", facts, lora=lora).value  # pyright: ignore[reportReturnType]

    small, middle, large = known
    assert [rate(size) for size in (1e3, 3.3e5, 1.35e8, 7e9, 7e10)] == [
        small, small, middle, large, large,
    ]  # fmt: skip
    # Half way in logarithms are geometric means.
    between = rate((3.3e5 * 1.35e8) ** 0.5), rate((1.35e8 * 7e9) ** 0.5)
    means = (small * middle) ** 0.5, (middle * large) ** 0.5
    assert between == pytest.approx(means, rel=0.02)  # two digits
    assert rate(1.35e8, rank=8) == pytest.approx(10 * middle)


@pytest.mark.parametrize("key", RATES)
def test_a_rate_at_a_billion_its_slope_floor_and_ceiling(key: str):
    at_1b, highest = RATES[key]

    def rate(parameters: int, rank: int = 0) -> object:
        lora = {"rank": rank, "alpha": 16}
        return resolve_key(key, replace(MODEL, parameters=parameters), lora=lora).value

    assert rate(10**9) == at_1b
    assert rate(10**9 * 100 // 144) == pytest.approx(1.2 * at_1b)
    assert rate(4 * 10**9) == rate(10**12) == at_1b / 2
    assert rate(1) == highest
    assert rate(10**9, rank=8) == pytest.approx(10 * at_1b)
    assert rate(1, rank=8) == pytest.approx(10 * highest)


def test_every_rule_is_tried_with_a_model_and_without():
    rates = (*RATES, "dpo.optim.learning_rate", "grpo.optim.learning_rate")
    tried = {resolve_key(key).pattern for key in (*rates, *(case[0] for case in CASES))}
    assert tried == set(RULES)
    embedded = {
        resolve_key(key, None, model={"path": None}, **WORD_PROBLEMS).pattern for key in EMBEDDED
    }
    assert embedded == set(RULES)


def test_generated_problems_teach_to_judge_with_half_of_the_positions():
    result = resolve_key("data.mixture", **WORD_PROBLEMS)
    assert result.value == JUDGING | {"max_prompt_tokens": 16_384}


def test_a_judge_may_read_two_answers_where_positions_are_few():
    few = replace(MODEL, positions=1024, completion_tokens=450)  # GPT-2's
    assert few.answer_tokens == 633  # 7/8 of 724
    assert few.row_tokens <= 1024
    assert resolve_key("presets.judge.judge.max_prompt_tokens", few).value == 1024 - 256
    assert resolve_key("presets.revision.max_prompt_tokens", few).value == 1024 - 633
    assert replace(MODEL, positions=301).answer_tokens == 1


def test_what_follows_from_a_limit_follows_a_number_in_its_place():
    limit = {"grpo": {"max_new_tokens": 100}}
    assert resolve_key("presets.dapo.overlong_buffer", **limit).value == 20
    shortest = {"grpo": {"max_new_tokens": 4}}
    assert resolve_key("presets.dapo.overlong_buffer", **shortest).value == 1
    rewarded = "presets.answer_concise.components.overlong.value.buffer"
    assert resolve_key(rewarded, **limit).value == 166, "a reward does not follow GRPO's limit"
    judge = "presets.judge.judge.max_prompt_tokens"
    sampling = {"preference": {"max_new_tokens": 64}, "test": {"max_new_tokens": "auto"}}
    assert resolve_key(judge, sampling=sampling).value == 300 + 2 * 832 + 512, "auto is an answer"


def test_few_train_prompts_are_a_step_together():
    few = replace(MODEL, train_prompts=40)
    content = {"grpo": {"prompts_per_step": "auto", "num_steps": "auto", "max_new_tokens": 8}}
    result, _ = auto.resolve(content, few, PARAMS | content)
    assert result["grpo"] == {"prompts_per_step": 40, "num_steps": 1, "max_new_tokens": 8}


def test_the_readme_shows_every_rule():
    """After a change of the rules: paste what this prints between the two comments."""
    rows = ["| key | embedded | rule | from |", "|---|---|---|---|"]
    for key, rule in RULES.items():
        embedded = "by the rule" if rule.embedded is None else f"`{rule.embedded}`"
        rows.append(f"| `{key}` | {embedded} | {rule.description} | {rule.source} |")
    text = (ROOT / "stages/README.md").read_text(encoding="utf-8")
    shown = text.partition("<!-- auto -->\n")[2].partition("\n<!-- end of auto -->")[0]
    assert shown == "\n".join(rows), "\n".join(rows)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)


def test_the_embedded_model_needs_no_facts_and_no_auto_is_left():
    content = read_yaml(ROOT / "params.yaml")
    result, _ = auto.resolve(content, auto.UNMEASURED)
    assert result == auto.resolve(content, None)[0]
    assert "auto" not in json.dumps({key: item for key, item in result.items() if key != "tables"})


def test_a_number_overrides_and_a_step_token_stays():
    content = {"grpo": {"max_new_tokens": 7, "optim": {"learning_rate": 0.5}}}
    assert auto.resolve(content, None, GIVEN) == (content, [])
    content = {"presets": {"process": {"step_token": "auto"}}}
    assert auto.resolve(content, None, GIVEN) == (content, [])


def test_lora_and_engine_of_params_yaml_are_resolved_before_what_depends_on_them():
    content = {"grpo": {"optim": {"learning_rate": "auto"}}}
    large = auto.Facts(parameters=10**10, positions=64, demonstrations=9, has_chat_template=False)
    rates = [
        auto.resolve(content, large, GIVEN | {"lora": lora})[0]["grpo"]["optim"]["learning_rate"]
        for lora in ("auto", {"rank": 8, "alpha": 1}, {"rank": 0, "alpha": 1})
    ]
    assert rates == [1e-5, 1e-5, 1e-6]


def test_an_auto_without_a_rule_says_where_those_with_one_are():
    with pytest.raises(ValueError, match=r"grpo.temperature: .* stages/auto.py has no rule"):
        auto.resolve({"grpo": {"temperature": "auto"}}, None)


def test_before_anything_is_measured_the_remedy_is_told():
    content = {"grpo": {"max_new_tokens": "auto"}}
    with pytest.raises(ValueError, match=r"grpo.max_new_tokens: .*dvc repro prepare_data"):
        auto.resolve(content, read_facts(GIVEN), GIVEN)


def test_what_a_rule_needs_of_params_yaml_and_lacks_is_told():
    content = {"grpo": {"num_steps": "auto"}}
    with pytest.raises(ValueError, match=r"grpo.num_steps: auto follows from .*'prompts_per_step'"):
        auto.resolve(content, auto.UNMEASURED, GIVEN | content)


def test_a_key_that_a_rule_divides_by_is_told_and_no_bare_error():
    content = {"grpo": {"num_steps": "auto", "prompts_per_step": 0}}
    with pytest.raises(ValueError, match=r"grpo.num_steps: auto follows from .*division"):
        auto.resolve(content, auto.UNMEASURED, GIVEN | content)


def test_facts_are_those_of_prompts_and_of_a_model_alone():
    FACTS_PATH.parent.mkdir(parents=True)
    FACTS_PATH.write_text(json.dumps(asdict(auto.UNMEASURED)))
    assert read_facts(GIVEN) == auto.UNMEASURED
    assert read_facts({"model": {"path": None}}) is None


@pytest.mark.parametrize("change", [{"heads": 8}, {"positions": None}])
def test_facts_with_fields_of_other_code_are_none(change: dict[str, int | None]):
    FACTS_PATH.parent.mkdir(parents=True)
    known = asdict(auto.UNMEASURED) | change
    FACTS_PATH.write_text(
        json.dumps({name: item for name, item in known.items() if item is not None})
    )
    assert read_facts(GIVEN) is None


def test_what_is_shown_has_every_rule_that_is_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "300")
    content = read_yaml(ROOT / "params.yaml")
    presets = read_yaml(ROOT / PRESETS_PATH)
    of_mine = content | {"model": content["model"] | {"path": "a/model"}}
    for given, facts in ((content, None), (of_mine, auto.UNMEASURED)):
        print_table(given, presets, facts)
        lines = capsys.readouterr().out.splitlines()
        cells = [[cell.strip() for cell in line.split("│")[1:4]] for line in lines if "│" in line]
        _, used = auto.resolve({**given, "presets": presets}, facts, strict=False)
        shown = {(pattern, value) for pattern, value, _ in cells}
        assert shown == {(item.pattern, str(item.value)) for item in used}
        assert len(cells) == len(shown) > 30
        words = {RULES[pattern].description for pattern, _ in shown}
        assert {rule for _, _, rule in cells} == (words if facts else {"of the embedded model"})


def test_an_auto_that_no_rule_is_for_is_not_shown(capsys: pytest.CaptureFixture[str]):
    content = read_yaml(ROOT / "params.yaml")
    print_table(content, {"unused": {"temperature": "auto"}}, None)
    assert "temperature" not in capsys.readouterr().out


def test_only_presets_that_a_row_names_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "300")
    presets = read_yaml(ROOT / PRESETS_PATH)
    tables = {"steps": {"a": {"by": "people", "preset": "math_aps"}}, "policies": {"b": {}}}
    shown: list[set[str]] = []
    for entries in (pick_presets(presets, tables), presets):
        print_table({"model": {"path": None}}, entries, None)
        lines = capsys.readouterr().out.splitlines()
        shown.append({line.split("│")[1].strip() for line in lines if "│" in line})
    assert shown[0] == {"presets.math_aps.max_tokens"}
    assert shown[1] >= {"presets.math_aps.max_tokens", "presets.prm800k.max_tokens"}
