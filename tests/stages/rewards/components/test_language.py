import pytest

from stages.rewards.components.language import share_in


@pytest.mark.parametrize(
    ("text", "scripts", "share"),
    [
        ("Hello, wörld", ["latin"], 1.0),
        ("ab да", ["latin"], 0.5),
        ("ab да", ["latin", "cyrillic"], 1.0),
        ("答え a", ["cjk", "hiragana"], 2 / 3),
        ("コーヒー 人々", ["katakana", "cjk"], 1.0),
        ("らーめん", ["hiragana"], 1.0),
        ("コーヒー 人々", ["latin"], 0.0),
        ("3 + 4 = 7\n#### 7", ["latin"], 1.0),
        ("", ["latin"], 1.0),
        # look-alikes: a full-width a, a bold a, a Cyrillic a
        ("\uff41\U0001d41a\u0430a", ["latin"], 0.25),
    ],
)
def test_the_share_of_letters(text, scripts, share):
    assert share_in(text, scripts) == pytest.approx(share)
