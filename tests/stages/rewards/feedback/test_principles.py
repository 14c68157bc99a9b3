import dataclasses

import pytest

from stages.rewards.feedback.principles import CONSTITUTIONS, Principle


@pytest.mark.parametrize("name", sorted(CONSTITUTIONS))
def test_principles_are_complete_and_apart(name):
    principles = CONSTITUTIONS[name]
    assert len(principles) >= 4
    for field in dataclasses.fields(Principle):
        texts = [getattr(principle, field.name) for principle in principles]
        assert all(text and text == text.strip() for text in texts)
        assert len(set(texts)) == len(texts)


def test_names_are_one_word_of_the_short_prompts():
    for principles in CONSTITUTIONS.values():
        assert all(principle.name.isalpha() for principle in principles)
        assert all(principle.name.islower() for principle in principles)
