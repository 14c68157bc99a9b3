"""Error messages without passwords of the addresses that they quote.

httpx quotes PREFECT_API_URL, MLflow its store's address, and libraries of remotes theirs. Messages
are logged, and stored by Prefect's server.
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
    r"(?<![\w/.-])(hf_(?=\w{30})|(?:[a-z]{2,8}\d{0,2}[_-])+(?=\w*[a-z])(?=\w*[A-Z])"
    r"(?=(?:[a-zA-Z]*\d+){2}))\w{16,}[\w-]*"
)
"""Text that looks like a token: a short prefix such as `sk-`, and a long mix of letters and digits.

After `hf_` letters suffice.
"""


def hide_secrets(text: str) -> str:
    """`text` without the users, passwords, tokens and other secrets in it."""
    text = re.sub(r"//([^/\s:]*:\S*|[^/@\s]+)@", "//***@", text)
    return TOKEN.sub(r"\1***", SECRET.sub(r"\1***", text))
