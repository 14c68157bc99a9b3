import pytest

from stages.rewards.components.boxed import is_boxed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{42}", True),
        (r"so \boxed{42}. Done.", True),
        (r"\boxed{\frac{3}{4}}", True),
        (r"\boxed {7}", False),
        (r"\boxed 7", False),
        (r"\boxed{}", False),
        (r"\boxed{7", False),
        (r"\boxed{1} or \boxed{2}", False),
        (r"\boxed{7} #### 7", False),
        (r"\boxed{perhaps seven}", False),
        ("#### 7", False),
        ("", False),
    ],
)
def test_one_readable_answer_in_one_box(text, expected):
    assert is_boxed(text) is expected
