"""What may be compared, and what a row has cost."""

import pytest
import studied_run

from stages.rewards import reward_file
from stages.rows import DATA
from stages.studies import equal_tokens

SFT = {"train": "sft", "preset": "sft", "from": "base", "on": "demonstrations"}
GRPO = {"train": "grpo", "preset": "g", "from": "sft", "on": "rewards/rule"}
PLAN = {
    "policies": {
        "sft": SFT,
        "grpo": GRPO,
        "other": GRPO | {"preset": "o"},
        "later": GRPO | {"from": "grpo"},
    }
}


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        (["grpo"], "expected two, each once"),
        (["grpo", "grpo"], "each once"),
        (["grpo", "sft"], "found 'sft'"),
        (["grpo", "none"], "found 'none'"),
        (["grpo", "later"], "'later' is made from 'grpo'"),
    ],
)
def test_what_cannot_be_compared_is_refused(policies, words):
    with pytest.raises(ValueError, match=words):
        equal_tokens.check_policies(PLAN, policies, "sft")


def test_two_policies_of_one_start_are_compared():
    equal_tokens.check_policies(PLAN, ["grpo", "other"], "sft")


def test_a_row_costs_what_it_says_with_this_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spent = {"generated_tokens": 3, "trained_tokens": 4}
    studied_run.write_json(DATA / "policies/grpo/training/1/metrics.json", spent)
    studied_run.write_json(DATA / "pairs/people/metrics.json", {"generated_tokens": 5})
    for name, kind in (("model", "preference"), ("rule", "rule")):
        (DATA / f"rewards/{name}").mkdir(parents=True)
        content = reward_file.model_reward_file("preference").model_copy(update={"kind": kind})
        reward_file.write_reward(DATA / f"rewards/{name}", content)
    studied_run.write_json(DATA / "rewards/model/1/metrics.json", {"trained_tokens": 6})
    result = [
        equal_tokens.count_tokens(DATA, table, name, 1)
        for table, name in (
            ("policies", "grpo"), ("pairs", "people"), ("rewards", "model"), ("rewards", "rule"),
        )
    ]  # fmt: skip
    assert result == [(3, 4), (5, 0), (0, 6), (0, 0)]
