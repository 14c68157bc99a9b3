"""No password in what is told."""

import pytest

from stages.tracking import store


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("http://me:secret@host:5000/api failed", "http://***@host:5000/api failed"),
        ("postgresql://me:s/e@c:r@host/db", None),
        ("https://token@host and http://a:b@c", "https://***@host and http://***@c"),
        ("mail me@host, see http://host/a@b", "mail me@host, see http://host/a@b"),
    ],
)
def test_user_and_password_of_an_address_are_hidden(text, told):
    found = store.without_secrets(text)
    assert "secret" not in found
    if told is not None:
        assert found == told
