"""Which mutations a run tries."""

import os
from collections.abc import Callable, Iterable

import pytest
import rotation


@pytest.fixture(scope="session")
def chosen() -> Callable[[Iterable[str], int], list[str]]:
    """Of names those that are tried: one in `share` of them, or in MUTATION_SHARE."""
    print(f"ROTATION_SEED={rotation.seed()}")

    def choose(names: Iterable[str], share: int) -> list[str]:
        every = list(names)
        result = rotation.part(every, int(os.environ.get("MUTATION_SHARE", share)))
        print(f"{len(result)} of {len(every)}: {' '.join(result)}")
        return result

    return choose
