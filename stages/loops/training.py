"""Configuration shared by the stages that train a model, and the intermediate policies they save.

data/policies/<policy>/training/<seed>/ has metrics.json, history.jsonl (the metrics of each step)
and, if there are any, rollouts.jsonl and checkpoints/step-<number>/: the intermediate policies.
They show how accuracy on dev, KL divergence and reward developed during training, and which policy
to keep. The policy after the last step is not among them.
"""

from pydantic import Field

from stages.config import Params
from stages.models.device import ComputeConfig
from stages.models.row_policy import LoraConfig, ModelConfig

POLICY_PREFIX = "step-"


class TrainingConfig(Params):
    """Sections of params.yaml that every stage that trains a model reads."""

    seeds: list[int]
    num_processes: int = Field(gt=0)
    """Processes that train one model together, each with a GPU and a shard of the weights."""
    compute: ComputeConfig
    model: ModelConfig
    lora: LoraConfig


def spaced_steps(num_steps: int, num_checkpoints: int) -> list[int]:
    """Steps, from 1, after which an intermediate policy is saved: evenly spaced, without the last.

        round(i * num_steps / (num_checkpoints + 1)),   i = 1 .. num_checkpoints

    A run with fewer steps saves a policy after every step except the last. 32 steps and 3
    checkpoints: 8, 16, 24.
    """
    # Integer arithmetic rounds half a step up; `round` would round it to the nearest even step.
    parts = 2 * (num_checkpoints + 1)
    steps = {(2 * i * num_steps + parts // 2) // parts for i in range(1, num_checkpoints + 1)}
    return sorted(step for step in steps if 0 < step < num_steps)
