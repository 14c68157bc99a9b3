"""What a judge did, where it is a model of ours."""

from collections.abc import Mapping
from typing import Any

from stages.loops import work
from stages.models.size import Size


def summary(tokens: Mapping[str, int], size: Size | None) -> dict[str, Any]:
    """`read_tokens`, `generated_tokens` and `work` of a metrics.json.

    The one position of each message whose logits decide is not counted as an output.

    Args:
        tokens: `read_tokens` and `generated_tokens` (`chooser.tokens`).
        size: of the policy that judges; None: an endpoint, whose work is empty, for nobody tells
            its size.
    """
    told = {name: tokens[name] for name in ("read_tokens", "generated_tokens")}
    if size is None:
        return told | {"work": {}}
    generated = tokens["generated_tokens"]
    passes = work.passed(
        "policy", "sampled", positions=tokens["read_tokens"] + generated, outputs=generated
    )
    return told | {"work": work.summary([passes], {"policy": size})}
