"""What a word may name."""

import presets

from stages import recipe_words
from stages.recipe import Recipe


def test_own_rewards_are_the_files_that_python_can_import(tmp_path, monkeypatch):
    monkeypatch.setattr(recipe_words, "OWN", tmp_path)
    for name in ("polite", "none", "my-reward", "2nd", "Loud", "__init__"):
        (tmp_path / f"{name}.py").touch()
    recipe = Recipe.model_validate(presets.CONTENT["recipes"]["comparison"])
    known = recipe_words.known(recipe, presets.CONTENT)
    for stage in recipe_words.ONLINE_STAGES:
        assert sorted(known[stage, "own"]) == ["none", "polite"]
