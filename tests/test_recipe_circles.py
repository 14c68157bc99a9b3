"""Entries that need each other, by what they read or by the one stage that assembles ensembles."""

import copy

import presets
import pytest

from stages import check_recipes

MODEL = "train_reward_model/sft-0/reward_model"


@pytest.fixture
def content():
    """params.yaml with the recipe `comparison` alone, planned."""
    recipe = copy.deepcopy(presets.CONTENT["recipes"]["comparison"])
    return presets.CONTENT | {"recipes": {"mine": recipe}, "plan": recipe}


def reward_model_on_ppo(plan, scorer):
    """A second round: pairs from the policy that PPO made, and a reward model on them."""
    plan["train_ppo"]["ppo"]["scorer"] = scorer
    pool = {"policy": "train_ppo/ppo/policy", "split": "preference"}
    plan["sample_candidates"]["ppo-preference"] = pool
    plan["label_preferences"]["ppo"] = {"train": "ppo-preference", "heldout": "sft-dev"}
    words = {"pairs": "label_preferences/ppo", "ensemble": "ppo"}
    plan["train_reward_model"]["ppo"] = plan["train_reward_model"]["sft-0"] | words


def test_a_reward_model_on_what_an_ensemble_taught_is_a_circle_and_the_remedy_is_none(content):
    """One stage assembles all ensembles: DVC would find the circle, at its first stage."""
    reward_model_on_ppo(content["plan"], "assemble_ensembles/ensembles/sft")
    (found,) = check_recipes.find_problems(content)
    place, _, rest = found.partition(": entries that need each other: ")
    circle, _, why = rest.partition("; ")
    assert place == "recipes.mine"
    assert set(circle.split(" -> ")) == {
        "sample_candidates/ppo-preference", "label_preferences/ppo", "train_reward_model/ppo",
        "assemble_ensembles", "train_ppo/ppo",
    }  # fmt: skip
    assert why.startswith("one stage assembles all ensembles")
    assert "train_reward_model/<n>/reward_model" in why
    reward_model_on_ppo(content["plan"], MODEL)
    assert check_recipes.find_problems(content) == []


def test_a_circle_without_the_assembler_says_nothing_of_it(content):
    content["plan"]["train_ppo"]["ppo"]["scorer"] = MODEL
    content["plan"]["sample_candidates"]["sft-dev"]["policy"] = "train_ppo/ppo/policy"
    found = [told for told in check_recipes.find_problems(content) if "each other" in told]
    assert found
    assert "train_reward_model/sft-0 -> label_preferences/sft" in found[0]
    assert "one stage" not in found[0]
