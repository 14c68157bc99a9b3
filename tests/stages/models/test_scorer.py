import shutil

import pytest
import torch
from tiny_checkpoints import CPU, PAD, checkpoint, compute, load, plain_logprobs

from stages.models import policy, scalar_head, scorer, tokenizer
from stages.models.aggregate import Minimum
from stages.models.batch import Group, collate
from stages.models.config import ModelConfig
from stages.models.process_scorer import ProcessScore

MODEL = ModelConfig(
    path=None,
    revision=None,
    tiny={
        "hidden_size": 8, "num_layers": 1, "num_heads": 2, "intermediate_size": 16,
        "max_length": 32, "vocab_size": 700,
    },
)  # fmt: skip
GROUP = Group(prompt_ids=[5, 6], completions=[[7, 8, 1], [9]], indices=[0, 1])
BATCH = collate([GROUP], 64, PAD, CPU)
MIN = Minimum(kind="min")
LAST = ProcessScore(kind="last")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_policy_scores_by_its_mean_log_prob_of_a_token():
    shutil.copytree(checkpoint("llama"), "data/train_grpo/zero/policy")
    score = scorer.load("train_grpo/zero/policy", MIN, LAST, MODEL, compute(), CPU)
    found = score([GROUP])
    model = load("llama")
    expected = [plain_logprobs(model, GROUP.prompt_ids, ids).mean() for ids in GROUP.completions]
    torch.testing.assert_close(found.values, torch.stack(expected), rtol=1e-4, atol=1e-5)
    assert found.disagreement.tolist() == [0.0, 0.0]


def save(word, seed):
    model = scalar_head.from_policy(checkpoint("llama"), PAD, compute(), CPU, head_seed=seed)
    policy.save(model, tokenizer.train(["1"], 700), scorer.start.DATA / word)
    return model.eval()


@pytest.mark.parametrize("stage", ["train_reward_model", "train_outcome_reward"])
def test_a_reward_model_and_an_outcome_model_score_by_their_head(stage):
    word = f"{stage}/sft/reward_model"
    model = save(word, seed=1)
    found = scorer.load(word, MIN, LAST, MODEL, compute(), CPU)([GROUP])
    torch.testing.assert_close(found.values, scalar_head.rewards(model, BATCH))
    assert scorer.tokenizer(word).get_vocab() == tokenizer.train(["1"], 700).get_vocab()


def test_an_ensemble_scores_by_its_heads_aggregated_and_has_its_members_tokenizer():
    word = "assemble_ensembles/ensembles/sft"
    models = [save(f"{word}/{number}", seed=number) for number in range(3)]
    alone = torch.stack([scalar_head.rewards(model, BATCH) for model in models])
    found = scorer.load(word, MIN, LAST, MODEL, compute(), CPU)([GROUP])
    torch.testing.assert_close(found.values, alone.amin(0))
    torch.testing.assert_close(found.disagreement, alone.std(0, correction=0))
    assert scorer.tokenizer(word).get_vocab() == tokenizer.train(["1"], 700).get_vocab()
