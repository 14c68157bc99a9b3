"""What a rule's folder holds: enough to maximise it, whatever it asks."""

import presets
import pytest
import stage_inputs
from pydantic import TypeAdapter
from stage_inputs import SEED

from stages import reward_rule, rows
from stages.rewards import reward_file
from stages.rows import BASE, DATA

OUTPUT = DATA / "rewards/new"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(preset: str, policy: str = BASE, on: str = "prompts") -> reward_file.RewardFile:
    stage_inputs.configure(presets.READ[preset], seeds=(SEED, 5))
    words = ("--by", "rule", "--preset", "mine", "--from", policy, "--on", on)
    reward_rule.main("reward_rule", "new", *words)
    return reward_file.read_reward(OUTPUT)


def test_a_rule_that_asks_nobody_is_its_composition_alone():
    with pytest.raises(ValueError, match="prompts"):  # what its components do not ask
        run("rule", on="own/brevity")
    assert not OUTPUT.exists()
    assert run("rule") == presets.reward("rule").model_copy(update={"own": None})
    assert [path.name for path in OUTPUT.iterdir()] == [reward_file.NAME]


def test_a_model_is_copied_for_each_seed_a_policy_or_that_of_another_reward():
    other = DATA / "rewards/other"
    for seed in (SEED, 5):
        stage_inputs.write_policy(seed=seed)
        for member in ("0", "1"):
            (other / str(seed) / "model" / member).mkdir(parents=True)
            (other / str(seed) / "model" / member / "config.json").write_text(f"{seed} {member}")
    assert run("judge_wins", policy="sft").model == "policy"
    for seed in (SEED, 5):
        copied = stage_inputs.read_files(reward_file.model_path(OUTPUT, seed))
        assert copied == stage_inputs.read_files(rows.locate_policy("sft", seed))
    minimum = TypeAdapter(reward_file.Aggregate).validate_python("min")
    reward_file.write_reward(other, reward_file.model_reward_file("preference", minimum))
    result = run("rule_model", on="rewards/other")
    assert (result.kind, result.model, result.aggregate) == ("rule", "reward", minimum)
    assert (OUTPUT / "5/model/1/config.json").read_text() == "5 1"
    with pytest.raises(ValueError, match="process, found reward"):
        run("process_sum", on="rewards/other")
    with pytest.raises(ValueError, match=f"`from: {BASE}`"):
        run("judge_wins")


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
    with pytest.raises(ValueError, match=r"own/absent\.py"):
        run("own", on="own/absent")
