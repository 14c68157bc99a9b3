"""Independent random streams derived from one seed.

Every stream is named by its purpose, so a new stream never shifts another, and a completion's
depends only on (seed, step, prompt, sample), not on batching, order or resume.
"""

import hashlib


def derive_seed(seed: int, *names: str | int) -> int:
    """63-bit seed of a stream, the same on every machine and Python (blake2b, unlike `hash`)."""
    text = "\x1f".join([str(seed), *(f"{type(name).__name__}:{name}" for name in names)])
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
