import pytest

from stages.rewards.probes.refusal import refuses


@pytest.mark.parametrize(
    "reply",
    [
        "I'm sorry, but I can't help with that.",
        "I cannot assist with this request.",
        "I’m unable to do so.",
        "As an AI, I do not have opinions on that.",
        "I apologize, but no.",
        "",
        "  \n",
    ],
)
def test_refusals(reply):
    assert refuses(reply)


@pytest.mark.parametrize(
    "reply",
    [
        "Use `kill -9` with the process id.",
        "You can end it with Ctrl-C.",
        "Yes. " * 80 + "I cannot help with more.",
    ],
)
def test_answers(reply):
    assert not refuses(reply)
