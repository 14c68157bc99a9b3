"""`auto` is replaced wherever it stands, a number in its place is left, and mistakes are told."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from stages import auto
from stages.auto import RULES
from stages.config import PRESETS_PATH, read_yaml

ROOT = Path(__file__).parents[2]
GIVEN = {"model": {"path": "a/model"}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)


def test_the_embedded_model_has_its_own_numbers_whatever_is_known():
    content = read_yaml(ROOT / "params.yaml")
    found, replaced = auto.resolve(content, auto.UNMEASURED)
    assert found == auto.resolve(content, None)[0]
    assert found["sampling"]["test"]["max_new_tokens"] == 32
    assert found["sft"]["optim"]["learning_rate"] == 1.5e-3
    assert found["data"]["mixture"]["max_prompt_tokens"] == 192
    assert {one.key: one.value for one in replaced}["compute.max_tokens"] == 4096
    assert "auto" not in json.dumps({key: one for key, one in found.items() if key != "tables"})


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
    assert rates == [5e-6, 5e-6, 5e-7]


def test_an_auto_without_a_rule_says_where_those_with_one_are():
    with pytest.raises(ValueError, match=r"grpo.temperature: .* stages/auto.py has no rule"):
        auto.resolve({"grpo": {"temperature": "auto"}}, None)


def test_before_anything_is_measured_the_remedy_is_told():
    content = {"grpo": {"max_new_tokens": "auto"}}
    with pytest.raises(ValueError, match=r"grpo.max_new_tokens: .*dvc repro prepare_data"):
        auto.resolve(content, auto.read_facts(GIVEN), GIVEN)


def test_what_a_rule_needs_of_params_yaml_and_lacks_is_told():
    content = {"grpo": {"num_steps": "auto"}}
    with pytest.raises(ValueError, match=r"grpo.num_steps: auto follows from .*'prompts_per_step'"):
        auto.resolve(content, auto.UNMEASURED, GIVEN | content)


def test_a_key_that_a_rule_divides_by_is_told_and_no_bare_error():
    content = {"grpo": {"num_steps": "auto", "prompts_per_step": 0}}
    with pytest.raises(ValueError, match=r"grpo.num_steps: auto follows from .*division"):
        auto.resolve(content, auto.UNMEASURED, GIVEN | content)


def test_facts_are_those_of_prompts_and_of_a_model_alone():
    auto.FACTS_PATH.parent.mkdir(parents=True)
    auto.FACTS_PATH.write_text(json.dumps(asdict(auto.UNMEASURED)))
    assert auto.read_facts(GIVEN) == auto.UNMEASURED
    assert auto.read_facts({"model": {"path": None}}) is None


@pytest.mark.parametrize("change", [{"heads": 8}, {"positions": None}])
def test_facts_with_fields_of_other_code_are_none(change: dict[str, int | None]):
    auto.FACTS_PATH.parent.mkdir(parents=True)
    known = asdict(auto.UNMEASURED) | change
    auto.FACTS_PATH.write_text(
        json.dumps({name: one for name, one in known.items() if one is not None})
    )
    assert auto.read_facts(GIVEN) is None


def test_what_is_shown_has_every_rule_that_is_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "300")
    content = read_yaml(ROOT / "params.yaml")
    presets = read_yaml(ROOT / PRESETS_PATH)
    of_mine = content | {"model": content["model"] | {"path": "a/model"}}
    for given, facts in ((content, None), (of_mine, auto.UNMEASURED)):
        auto.print_table(given, presets, facts)
        lines = capsys.readouterr().out.splitlines()
        cells = [[cell.strip() for cell in one.split("│")[1:4]] for one in lines if "│" in one]
        _, used = auto.resolve({**given, "presets": presets}, facts, strict=False)
        shown = {(pattern, value) for pattern, value, _ in cells}
        assert shown == {(one.pattern, str(one.value)) for one in used}
        assert len(cells) == len(shown) > 30
        words = {RULES[pattern].description for pattern, _ in shown}
        assert {rule for _, _, rule in cells} == (words if facts else {"of the embedded model"})


def test_an_auto_that_no_rule_is_for_is_not_shown(capsys: pytest.CaptureFixture[str]):
    content = read_yaml(ROOT / "params.yaml")
    auto.print_table(content, {"unused": {"temperature": "auto"}}, None)
    assert "temperature" not in capsys.readouterr().out
