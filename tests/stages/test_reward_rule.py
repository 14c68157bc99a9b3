"""What a rule's folder holds: enough to maximise it, whatever it asks."""

import pytest
import stage_inputs
from pydantic import TypeAdapter
from stage_inputs import SEED

from stages import reward_rule, rows
from stages.config import PRESETS_PATH, read_yaml
from stages.rewards import reward_file
from stages.rows import BASE, DATA

OUTPUT = DATA / "rewards/new"
PRESETS = read_yaml(PRESETS_PATH)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(preset: str, policy: str = BASE, on: str = "prompts") -> reward_file.RewardFile:
    stage_inputs.configure(PRESETS[preset], seeds=(SEED, 5))
    words = ("--by", "rule", "--preset", "mine", "--from", policy, "--on", on)
    reward_rule.main("reward_rule", "new", *words)
    return reward_file.read_reward(OUTPUT)


def test_a_rule_that_asks_nobody_is_its_composition_alone():
    result = run("rule")
    assert (result.kind, result.model, result.own) == ("rule", None, None)
    assert result.composition.components["final_line"].weight == 0.2
    assert [path.name for path in OUTPUT.iterdir()] == [reward_file.NAME]


def test_a_judge_is_copied_for_each_seed():
    for seed in (SEED, 5):
        stage_inputs.write_policy(seed=seed)
    result = run("judge_wins", policy="sft")
    assert result.model == "policy"
    for seed in (SEED, 5):
        copied = reward_file.model_path(OUTPUT, seed)
        assert {path.name for path in copied.iterdir()} == {
            path.name for path in rows.locate_policy("sft", seed).iterdir()
        }
    with pytest.raises(ValueError, match=r"expected `from: <policy>`.*found `from: base`"):
        run("judge_wins")


def test_a_model_that_scores_is_that_of_another_reward_with_its_aggregate():
    other = DATA / "rewards/other"
    for seed in (SEED, 5):
        for member in ("0", "1"):
            (other / str(seed) / "model" / member).mkdir(parents=True)
            (other / str(seed) / "model" / member / "config.json").write_text(f"{seed} {member}")
    minimum = TypeAdapter(reward_file.Aggregate).validate_python("min")
    reward_file.write_reward(other, reward_file.model_reward_file("preference", minimum))
    result = run("rule_model", on="rewards/other")
    assert (result.kind, result.model, result.aggregate) == ("rule", "reward", minimum)
    assert (OUTPUT / "5/model/1/config.json").read_text() == "5 1"
    with pytest.raises(ValueError, match="expected model process, found reward"):
        run("process_sum", on="rewards/other")


def test_a_function_of_the_users_is_named_with_the_digest_of_its_source():
    (DATA / "own").mkdir(parents=True)
    digests = []
    for content in ('{"a": "1"}', '{"a": "2"}', '{"a": "1"}'):
        (DATA / "own/brevity").write_text(content)
        result = run("rule_own", on="own/brevity")
        assert (result.model, result.own) == (None, "brevity")
        digests.append(result.own_digest)
    assert digests[0] == digests[2] != digests[1]
    (DATA / "own/absent").write_text("{}")
    with pytest.raises(ValueError, match=r"there is no stages/rewards/own/absent\.py"):
        run("own", on="own/absent")


@pytest.mark.parametrize(
    ("preset", "on", "expected"),
    [
        ("rule_own", "prompts", "own/<name>"),
        ("rule_model", "prompts", "rewards/<name>"),
        ("rule", "own/brevity", "prompts"),
        ("rule", "rewards/other", "prompts"),
    ],
)
def test_a_row_names_what_its_components_ask_and_nothing_else(preset, on, expected):
    with pytest.raises(ValueError, match=rf"expected `on: {expected}`, found `on: {on}`"):
        run(preset, on=on)
    assert not OUTPUT.exists()
