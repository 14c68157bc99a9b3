"""No password in what is shown."""

import pytest

from stages.tracking import store


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:secret@host:5000/api failed", "http://***@host:5000/api failed"),
        ("postgresql://me:s/e@c:r@host/db", "postgresql://***@host/db"),
        ("postgresql://me:s#e@c?r@host/db", "postgresql://***@host/db"),
        ("postgresql://me@corp:secret@host/db", "postgresql://***@host/db"),
        ("https://token@host and http://a:b@c", "https://***@host and http://***@c"),
        ("mail me@host, see http://host/a@b", "mail me@host, see http://host/a@b"),
    ],
)
def test_user_and_password_of_an_address_are_hidden(text, shown):
    assert store.hide_secrets(text) == shown


@pytest.mark.parametrize("password", ["se#cret", "se/cret", "se?cret"])
def test_an_address_that_cannot_be_read_is_an_outage_that_tells_no_password(password):
    with pytest.raises(OSError, match="no port that is a number") as caught:
        store.check_server(f"postgresql://me:{password}@host/db")
    assert isinstance(caught.value, store.OUTAGES)
    assert "se" not in str(caught.value)
    assert caught.value.__suppress_context__
