"""A message to a model and the reply that it should learn, before they are rendered."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """A demonstration of any task, in text."""

    id: str
    """The problem's id."""
    task: str
    """What is asked: `judge`, `critique`, `revise`."""
    message: str
    """The whole message to the model; nothing is put around it but a chat template."""
    reply: str
