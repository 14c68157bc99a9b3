"""What a judge did, where it is a model of ours."""

from collections.abc import Mapping
from typing import Any

from stages.loops import work
from stages.models import size
from stages.models.config import ModelConfig

NO_MODEL = "no_model"
"""The word of an entry whose judge is an endpoint."""


def summary(word: str, tokens: Mapping[str, int], config: ModelConfig) -> dict[str, Any]:
    """`read_tokens`, `generated_tokens` and `work` of a metrics.json.

    The work of an endpoint is empty: nobody tells its size.

    The one position of each message whose logits decide is not counted as an output.

    Args:
        word: the judge, a policy's folder under data/, or `no_model`.
        tokens: `read_tokens` and `generated_tokens` (`chooser.tokens`).
        config: says what the base model is.
    """
    told = {name: tokens[name] for name in ("read_tokens", "generated_tokens")}
    if word == NO_MODEL:
        return told | {"work": {}}
    generated = tokens["generated_tokens"]
    passes = work.passed(
        "policy", "sampled", positions=tokens["read_tokens"] + generated, outputs=generated
    )
    return told | {"work": work.summary([passes], {"policy": size.of_start(word, config)})}
