"""Errors in the user's files are shown with the user's file and line."""

import pytest

from stages.environments.environment import check_reply
from stages.own_modules import PACKAGE, describe_error


def run_source(source, path):
    exec(compile(source, path, "exec"), {})


@pytest.mark.parametrize(
    "path",
    ["/home/me/shop.py", f"{PACKAGE}/rewards/own/shop.py", f"{PACKAGE}/rewards/own/sub/shop.py"],
)
@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("\n1 / 0", "ZeroDivisionError: division by zero (shop.py, line 2)"),
        (
            "import json\n\njson.loads('x')",
            "JSONDecodeError: Expecting value: line 1 column 1 (char 0) (shop.py, line 3)",
        ),
        ("raise KeyError", "KeyError (shop.py, line 1)"),
    ],
)
def test_the_line_is_the_users_and_not_the_librarys(source, text, path):
    with pytest.raises(Exception) as caught:
        run_source(source, path)
    assert describe_error(caught.value) == text


def test_code_that_a_library_wrote_and_packages_of_the_home_folder_are_no_files_of_the_users():
    scope = {}
    library = """
from dataclasses import dataclass
@dataclass
class Price:
    euros: int
    def __post_init__(self):
        raise OverflowError
"""
    path = "/home/me/.local/lib/python3.11/site-packages/prices.py"
    exec(compile(library, path, "exec"), scope)
    with pytest.raises(OverflowError) as caught:
        exec(compile("\n\n\nPrice(3)", "/home/me/shop.py", "exec"), scope)
    assert describe_error(caught.value) == "OverflowError (shop.py, line 4)"


def test_a_sentence_of_this_package_stays_as_it_is():
    with pytest.raises(ValueError, match="expected a Reply") as caught:
        check_reply(None)
    assert caught.tb.tb_next is not None
    error = caught.value.with_traceback(caught.tb.tb_next)  # without the line of this test
    assert describe_error(error) == "expected a Reply from step, found None"
