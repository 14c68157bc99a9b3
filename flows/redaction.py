"""Messages of errors without the passwords of the addresses that they quote.

httpx quotes PREFECT_API_URL as it is, and libraries of remotes theirs. Messages are logged, and
kept by Prefect's server.
"""

import re


def hide_secrets(text: str) -> str:
    """`text` with the user and password of every address in it hidden."""
    # As in stages/tracking/store.py, which flows do not import.
    return re.sub(r"//([^/\s:]*:\S*|[^/@\s]+)@", "//***@", text)
