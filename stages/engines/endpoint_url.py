"""The URL of an endpoint, which may hold a user and a password: checked and shown without them."""

import re
from urllib.parse import urlsplit


def check(url: str, variable: str) -> None:
    """Make sure that `url`, found in the environment `variable`, is one of a server.

    Raises:
        ValueError: it is none. The value is not repeated.
    """
    try:
        parts = urlsplit(url)
        known = (
            parts.scheme in ("http", "https")
            and re.fullmatch(r"[\w.:-]+", parts.hostname or "") is not None
            and parts.netloc.count("@") <= 1
            and parts.port != 0
        )
    except ValueError:  # a port that is no number; its text repeats what stands there
        known = False
    if not known:
        raise ValueError(
            f"expected http(s)://host[:port]/v1 in {variable}, found something else (not shown "
            f"here: it may hold a password). Write @, :, / and # inside a password as %40, %3A, "
            f"%2F and %23."
        )


def shown(url: str) -> str:
    """The URL without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
