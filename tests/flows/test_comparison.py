"""What is asked for; that the flow does it is tested in tests/test_equal_tokens.py."""

import pytest

from flows import comparison


def asked(*words: str) -> comparison.Comparison:
    return comparison.words(comparison.parser("flows.compare", None).parse_args(words))


def test_words_become_policies_seeds_and_a_name() -> None:
    found = asked("--policies", "dpo,grpo", "--seeds", "4,7", "--tokens", "500")
    assert found == comparison.Comparison(
        policies=("dpo", "grpo"), seeds=(4, 7), tokens=500, recipe=None, name="dpo-grpo-500"
    )
    assert asked("--policies", "a,b", "--tokens", "1").seeds == (0, 1, 2)
    assert asked("--policies", "a,b", "--tokens", "1", "--name", "mine").name == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policies", "dpo"], "policies: expected 2 or more"),
        (["--policies", "dpo,dpo"], "each once"),
        (["--policies", "dpo,ppo", "--seeds", "1,1"], "seeds: expected 1 or more, each once"),
        (["--policies", "dpo,ppo", "--tokens", "0"], "tokens: expected a budget"),
    ],
)
def test_words_that_ask_for_nothing_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        asked("--tokens", "9", *words)
