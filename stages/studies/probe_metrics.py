"""Everything that probing found out about a policy, in one file."""

from collections.abc import Sequence
from typing import Any

from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.studies import probe_catalogue, probe_gate
from stages.studies.probe_catalogue import ProbeConfig, Words
from stages.studies.probe_gate import Values


def metrics(
    policy: str,
    values: Values,
    drawn: Sequence[tuple[Prompt, Sequence[Completion]]],
    words: Words,
    config: ProbeConfig,
    *,
    is_chat: bool,
    generated_tokens: int,
    seed: int,
) -> dict[str, Any]:
    """The content of `data/probe_policy/<policy>/metrics.json`.

    Args:
        policy: its folder under data/.
        values: see `probe_gate.by_probe`.
        drawn: samples of the dev problems.
        words: what the entry names.
        config: how intervals are made.
        is_chat: whether the policy has a chat template.
        generated_tokens: by all probing.
        seed: of the resamples.
    """
    interval = {"num_resamples": config.num_bootstrap, "confidence": config.confidence}
    why = probe_catalogue.reasons(values, words, has_chat_template=is_chat)
    return {
        "policy": policy,
        "dev_accuracy": probe_gate.dev_accuracy(drawn, **interval, seed=seed),
        **probe_gate.summarise(values, why, **interval, seed=seed),
        "generated_tokens": generated_tokens,
    }
