"""Digest of the problem that a start poses, which tells starts with the same problem."""

import hashlib
import json
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from stages.environments import scripts
from stages.environments.closing import close_environment
from stages.environments.definition import Factory
from stages.environments.environment import to_json
from stages.environments.time_limit import FAILURES, call_within
from stages.own_modules import describe_error, restored_settings

logger = logging.getLogger(__name__)

NUMBERING = ("id", "index")
"""Keys of a row that are independent of its problem."""


@restored_settings()
def digest_problem(factory: Factory, row: Mapping[str, Any], env_seed: int, seconds: float) -> str:
    """Digest of first messages, tools, the row without its numbering, and the demonstration.

    First messages may hide the problem (a number to guess); the demonstration, or the question and
    answer in the row, shows it. Without them every start has another digest, since the environment
    draws its problem by the seed. Demonstrations must be equal for equal problems, or a problem
    counts as several.
    """
    content = {key: value for key, value in row.items() if key not in NUMBERING}
    environment, begun, demonstration = factory(), None, None
    try:
        begun = call_within(seconds, partial(environment.start, dict(row), env_seed))
    except FAILURES as error:  # its episodes failed, too
        logger.info("start of row '%s' failed: %s", row["id"], describe_error(error))
    finally:
        close_environment(environment, seconds)
    if hasattr(environment, "demonstrate"):
        try:
            demonstration = scripts.demonstrate(factory(), row, env_seed, seconds=seconds)
        except FAILURES as error:  # some rows may have no demonstration
            logger.info("no demonstration of row '%s': %s", row["id"], describe_error(error))
    hidden = None if content or demonstration else [row["id"], env_seed]
    text = json.dumps(to_json([begun, content, demonstration, hidden]), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
