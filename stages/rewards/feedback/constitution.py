"""The constitutions by which answers are compared, criticised and revised."""

from stages.rewards.feedback.principle import Principle
from stages.rewards.feedback.principles_of_correctness import CORRECT
from stages.rewards.feedback.principles_of_harmlessness import HARMLESS

__all__ = ["CONSTITUTIONS", "CORRECT", "HARMLESS", "Principle"]

CONSTITUTIONS = {"correct": CORRECT, "harmless": HARMLESS}
"""By the name that params.yaml gives them."""
