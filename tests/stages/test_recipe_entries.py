"""Words that no entry may say, whatever there is of this name."""

import copy

import presets
import pytest

from stages import check_recipes
from stages.rewards import own_reward


@pytest.fixture
def content():
    """params.yaml with the recipe `comparison` alone, planned."""
    recipe = copy.deepcopy(presets.CONTENT["recipes"]["comparison"])
    return presets.CONTENT | {"recipes": {"mine": recipe}, "plan": recipe}


@pytest.mark.parametrize("word", ["my-reward", "2nd", "Loud", "mine/polite", "polite.py", ""])
def test_an_own_reward_that_python_cannot_import_is_told_with_the_allowed_characters(content, word):
    content["plan"]["train_grpo"]["grpo"] |= {"reward": "rule_own", "own": word}
    (found,) = check_recipes.find_problems(content)
    assert found.startswith("recipes.mine.train_grpo.grpo.own: ")
    assert f"lower-case letters, digits and underscores, a letter first (found '{word}')" in found
    with pytest.raises(ValueError, match="lower-case letters, digits and underscores, a letter"):
        own_reward.load(word)


def test_an_ensemble_is_one_folder(content):
    content["plan"]["train_reward_model"]["sft-1"]["ensemble"] = "sft/large"
    (found,) = check_recipes.find_problems(content)
    assert found.startswith("recipes.mine.train_reward_model.sft-1.ensemble: String should match")
