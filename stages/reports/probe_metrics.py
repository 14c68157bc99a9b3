"""Everything that probing found out about a policy, in one file."""

from collections.abc import Sequence
from typing import Any

from stages.records.completion import Completion
from stages.records.prompt import Prompt
from stages.reports import dev_accuracy, probe_summary
from stages.reports.probe_summary import Values
from stages.rewards.probes import not_run
from stages.rewards.probes.config import ProbeConfig
from stages.rewards.probes.given import Words


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
        values: see `probe_summary.by_probe`.
        drawn: samples of the dev problems.
        words: what the entry names.
        config: how intervals are made.
        is_chat: whether the policy has a chat template.
        generated_tokens: by all probing.
        seed: of the resamples.
    """
    interval = {"num_resamples": config.num_bootstrap, "confidence": config.confidence}
    why = not_run.reasons(values, words, has_chat_template=is_chat)
    return {
        "policy": policy,
        "dev_accuracy": dev_accuracy.summarise(drawn, **interval, seed=seed),
        **probe_summary.summarise(values, why, **interval, seed=seed),
        "generated_tokens": generated_tokens,
    }
