"""What a probe found at one problem."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeValue:
    """One row of `data/probe_policy/<policy>/probes.jsonl`."""

    probe: str
    """One of `rewards/probes/catalogue`."""
    id: str
    """The problem's id, by which policies are compared as pairs."""
    value: float
    """The mean over the problem's completions, where the probe reads several."""
