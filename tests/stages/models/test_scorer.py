import shutil

import pytest
import torch
from tiny_checkpoints import CPU, PAD, checkpoint, compute, load, plain_logprobs

from stages.models import policy, scalar_head, scorer, tokenizer
from stages.models.batch import Group, collate
from stages.models.config import ModelConfig

MODEL = ModelConfig(
    path=None,
    revision=None,
    tiny={
        "hidden_size": 8, "num_layers": 1, "num_heads": 2, "intermediate_size": 16,
        "max_length": 32, "vocab_size": 700,
    },
)  # fmt: skip
GROUP = Group(prompt_ids=[5, 6], completions=[[7, 8, 1], [9]], indices=[0, 1])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_policy_scores_by_its_mean_log_prob_of_a_token():
    shutil.copytree(checkpoint("llama"), "data/train_grpo/zero/policy")
    score = scorer.load("train_grpo/zero/policy", MODEL, compute(), CPU)
    found = score(collate([GROUP], 64, PAD, CPU))
    model = load("llama")
    expected = [plain_logprobs(model, GROUP.prompt_ids, ids).mean() for ids in GROUP.completions]
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-4, atol=1e-5)


def test_a_reward_model_scores_by_its_head():
    model = scalar_head.from_policy(checkpoint("llama"), PAD, compute(), CPU).eval()
    torch.nn.init.normal_(model.score.weight, generator=torch.Generator().manual_seed(1))
    words = tokenizer.train(["1"], 700)
    policy.save(model, words, scorer.start.DATA / "train_reward_model/sft/reward_model")
    score = scorer.load("train_reward_model/sft/reward_model", MODEL, compute(), CPU)
    batch = collate([GROUP], 64, PAD, CPU)
    torch.testing.assert_close(score(batch), scalar_head.rewards(model, batch))
