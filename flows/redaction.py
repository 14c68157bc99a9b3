"""Messages of errors without the passwords of the addresses that they quote.

httpx quotes PREFECT_API_URL as it is, and libraries of remotes theirs. Messages are logged, and
kept by Prefect's server.
"""

import re

SECRET = re.compile(
    r"((?:[?&;#](?:sig|pwd|[\w-]*(?:token|secret|signature))"
    r"|(?<![\w-])[\w-]*(?:password|accesssignature|(?:api|access|account)[_-]?key))="
    r"[\"']?)[^&;\s\"']+",
    re.IGNORECASE,
)
"""A word of an address's query, or of a connection string, with a value that gives access.

Words that also stand in harmless text (`pad_token=3`) count only after a `?`, `&`, `;` or `#`.
"""


def hide_secrets(text: str) -> str:
    """`text` with user, password and secret words of the query of every address in it hidden."""
    # As in stages/tracking/store.py, which flows do not import.
    text = re.sub(r"//([^/\s:]*:\S*|[^/@\s]+)@", "//***@", text)
    return SECRET.sub(r"\1***", text)
