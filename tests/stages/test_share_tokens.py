import json

import planned_copies
import pytest
from ruamel.yaml import YAML

from stages import share_tokens


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    planned_copies.write_plan(tmp_path)
    planned_copies.write_costs(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(capsys, *words):
    share_tokens.main(*words)
    return json.loads(capsys.readouterr().out)


def test_what_policies_are_made_from_comes_first_as_dvc_names_it(capsys):
    assert printed(capsys, "needed", "grpo") == ["train_sft@sft"]
    assert printed(capsys, "needed", "dpo,ppo") == [
        "train_sft@sft",
        "sample_candidates@sft-preference",
        "compute_ref_logprobs@sft",
        "train_reward_model@sft-0",
    ]


def test_a_policy_pays_what_it_is_made_from_in_full_and_trains_on_the_rest(capsys, folder):
    pools = printed(capsys, "budget", "dpo,ppo,grpo", "1000")
    assert pools == [f"sample_candidates@{name}-test" for name in ("sft", "dpo", "ppo", "grpo")]
    content = YAML(typ="safe").load(folder / "params.yaml")
    assert content["train_dpo"]["token_budgets"] == {"dpo": 700}
    assert content["train_ppo"]["token_budgets"] == {"ppo": 600}
    assert content["train_grpo"]["token_budgets"] == {"grpo": 1000}


def test_asking_for_what_is_needed_writes_nothing(capsys, folder):
    before = (folder / "params.yaml").read_bytes()
    printed(capsys, "needed", "dpo,ppo,grpo")
    assert (folder / "params.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["needed", "dpq"], "no policy 'dpq' to compare; the plan has dpo, grpo, ppo"),
        (["needed", "dpo,sft"], "no policy 'sft'"),
        (["budget", "dpo,grpo", "300"], r"'dpo' costs 300 tokens before .*budget is 300: raise"),
    ],
)
def test_what_cannot_be_compared_is_refused(words, message):
    with pytest.raises(SystemExit, match=message):
        share_tokens.main(*words)


def test_a_policy_and_one_made_from_it_are_not_compared(tmp_path):
    planned_copies.write_plan(tmp_path, "offline_then_online")
    with pytest.raises(SystemExit, match="'dpo-ppo' is made from 'dpo': compare one of them"):
        share_tokens.main("needed", "dpo,dpo-ppo")


def test_a_policy_that_takes_no_budget_is_refused(tmp_path):
    planned_copies.write_plan(tmp_path, "rejection_sampling")
    with pytest.raises(SystemExit, match="'rft' is made by train_sft/rft, which takes no budget"):
        share_tokens.main("needed", "rft")
