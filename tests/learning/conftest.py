"""What `dvc repro` made of the embedded model: the start of every learning test."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import auto
from stages.algorithms.statistics.intervals import bootstrap_means
from stages.config import read_yaml
from stages.engines import transformers as engine
from stages.loops import rollouts
from stages.loops.rollouts import RolloutConfig, Rollouts
from stages.models import model_tokenizer, policy
from stages.models.device import ComputeConfig, setup
from stages.records import lines
from stages.records.problems import Prompt
from stages.rewards import reward_file

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY / "data"
SEED = 0
"""Of the policy, its pairs and its reward model; the default run has others beside it."""
SFT = DATA / f"policies/sft/model/{SEED}"
PAIRS = DATA / f"pairs/verifier/{SEED}/train.jsonl"
REWARD = DATA / "rewards/preference"
REWARD_MODEL = reward_file.model_path(REWARD, SEED)
NUM_PROMPTS, NUM_SAMPLES = 160, 4
MAX_NEW_TOKENS = 32


@dataclass
class Embedded:
    """The SFT policy of the comparison, its prompts, and its completions of held-out ones."""

    compute: ComputeConfig
    tokenizer: PreTrainedTokenizerBase
    train: list[Prompt]
    heldout: list[Prompt]

    def load(self) -> PreTrainedModel:
        return policy.load_policy(SFT, self.compute, torch.device("cpu"))

    def draw(self, model: PreTrainedModel) -> Rollouts:
        """Completions of the held-out prompts; the same streams for every model."""
        return rollouts.sample_rollouts(
            engine.make_sampler(model, self.tokenizer, max_batch=1024),
            model_tokenizer.make_decode(self.tokenizer),
            self.heldout,
            step=0,
            seed=5,
            group_size=NUM_SAMPLES,
            config=RolloutConfig(temperature=1.0, max_new_tokens=MAX_NEW_TOKENS),
        )


@pytest.fixture(scope="session")
def embedded() -> Embedded:
    if not (SFT / "model.safetensors").exists() or not REWARD_MODEL.exists():
        pytest.skip("the embedded model is not trained: run `dvc repro` first, as .ci/run does")
    content, _ = auto.resolve(read_yaml(REPOSITORY / "params.yaml"), None)
    config = ComputeConfig(**content["compute"])
    setup(config)
    prompts = DATA / "prompts"
    return Embedded(
        compute=config,
        tokenizer=model_tokenizer.load_tokenizer(SFT),
        train=list(lines.read_lines(prompts / "train.jsonl", Prompt)),
        heldout=list(lines.read_lines(prompts / "test.jsonl", Prompt))[:NUM_PROMPTS],
    )


def gain(after: list[float], before: list[float]) -> tuple[float, float, float]:
    """Mean difference and its 95 % interval, paired by prompt and resampled over prompts."""
    difference = np.array(after, dtype=float) - np.array(before, dtype=float)
    by_prompt = difference.reshape(-1, NUM_SAMPLES).mean(1, keepdims=True)
    value, low, high = bootstrap_means(by_prompt, num_resamples=2000, confidence=0.95, seed=0)
    return float(value[0]), float(low[0]), float(high[0])
