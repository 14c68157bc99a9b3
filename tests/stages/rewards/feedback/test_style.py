from typing import get_args

import pytest

from stages.rewards.feedback import style


def test_the_type_names_the_styles():
    assert get_args(style.Style) == style.STYLES


def test_an_unknown_style_is_refused():
    for name in style.STYLES:
        style.check(name)
    with pytest.raises(ValueError, match=r"one of short, full, found 'long'"):
        style.check("long")
