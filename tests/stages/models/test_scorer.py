from pathlib import Path

import pytest
import torch
from tiny_checkpoints import CPU, PAD, checkpoint, compute

from stages.models import policy, scalar_head, scorer, tokenizer
from stages.models.aggregate import Minimum
from stages.models.batch import Group, collate

GROUP = Group(prompt_ids=[5, 6], completions=[[7, 8, 1], [9]], indices=[0, 1])
BATCH = collate([GROUP], 64, PAD, CPU)
MIN = Minimum(kind="min")
DATA = Path("data")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def save(word, seed):
    model = scalar_head.from_policy(checkpoint("llama"), PAD, compute(), CPU, head_seed=seed)
    policy.save(model, tokenizer.train(["1"], 700), DATA / word)
    return model.eval()


@pytest.mark.parametrize("stage", ["train_reward_model", "train_outcome_reward"])
def test_a_reward_model_and_an_outcome_model_score_by_their_head(stage):
    word = f"{stage}/sft/reward_model"
    model = save(word, seed=1)
    found = scorer.load(DATA / word, MIN, compute(), CPU)([GROUP])
    torch.testing.assert_close(found.values, scalar_head.rewards(model, BATCH))


def test_an_ensemble_scores_by_its_heads_aggregated():
    word = "assemble_ensembles/ensembles/sft"
    models = [save(f"{word}/{number}", seed=number) for number in range(3)]
    alone = torch.stack([scalar_head.rewards(model, BATCH) for model in models])
    found = scorer.load(DATA / word, MIN, compute(), CPU)([GROUP])
    torch.testing.assert_close(found.values, alone.amin(0))
    torch.testing.assert_close(found.disagreement, alone.std(0, correction=0))


def test_any_split_into_groups_and_any_numbers_of_theirs_give_the_same_scores():
    save("train_reward_model/sft/reward_model", seed=1)
    score = scorer.load(DATA / "train_reward_model/sft/reward_model", MIN, compute(), CPU)
    parts = [
        Group(prompt_ids=[5, 6], completions=[ids], indices=[number])
        for number, ids in ((9, [7, 8, 1]), (4, [9]))
    ]
    torch.testing.assert_close(score(parts).values, score([GROUP]).values)
