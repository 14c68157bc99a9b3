"""Messages of errors without the passwords of the addresses that they quote.

httpx quotes PREFECT_API_URL as it is, and libraries of remotes theirs. Messages are logged, and
kept by Prefect's server.
"""

import re

SECRET = re.compile(
    r"((?:(?:[?&;#](?:sig|pwd|[\w-]*(?:token|signature))"
    r"|(?<![\w-])[\w-]*(?:password|secret|accesssignature|(?:api|access|account)[_-]?key))"
    r"(?:=|[\"']\s*:\s*)|\bbearer\s)[\"']?)[^&;\s\"']+",
    re.IGNORECASE,
)
"""A word of an address's query, a connection string or a header, with a value that gives access.

Words that also stand in harmless text (`pad_token=3`) count only after a `?`, `&`, `;` or `#`.
"""
TOKEN = re.compile(
    r"(?<![\w/.-])((?:[a-z]{2,8}[_-])+)(?=\w*[a-z])(?=\w*[A-Z])(?=(?:[a-zA-Z]*\d+){2})\w{16,}"
)
"""A token by its looks: a short word, as `hf_` or `sk-`, and a long mixture of letters, digits."""


def hide_secrets(text: str) -> str:
    """`text` without the users, passwords, tokens and other secrets in it."""
    # As in stages/tracking/store.py, which flows do not import.
    text = re.sub(r"//([^/\s:]*:\S*|[^/@\s]+)@", "//***@", text)
    return TOKEN.sub(r"\1***", SECRET.sub(r"\1***", text))
