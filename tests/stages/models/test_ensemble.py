from functools import partial
from pathlib import Path

import pytest
import torch
from tiny_checkpoints import CPU, PAD, checkpoint, compute

from stages.algorithms.ensemble import mean, mean_minus_std, minimum
from stages.models import ensemble, model_tokenizer, policy, scalar_head
from stages.models.batch import Group, collate

GROUP = Group(prompt_ids=[5, 6], completions=[[7, 8, 1], [9]], indices=[0, 1])
BATCH = collate([GROUP], 64, PAD, CPU)


def save(path, seed):
    model = scalar_head.from_policy(checkpoint("llama"), PAD, compute(), CPU, head_seed=seed)
    model.save_pretrained(path)
    return model.eval()


def load(path, aggregate):
    return ensemble.load(path, aggregate, compute(), CPU)


def test_an_ensemble_scores_as_its_members_aggregated(tmp_path):
    members = [save(tmp_path / str(number), seed=number) for number in range(3)]
    alone = torch.stack([scalar_head.rewards(model, BATCH) for model in members])
    assert (alone.std(0) > 0.1).all()
    for aggregate in (
        mean,
        minimum,
        partial(mean_minus_std, k=1.0),
    ):
        found = load(tmp_path, aggregate)(BATCH)
        torch.testing.assert_close(found.values, aggregate(alone))
        torch.testing.assert_close(found.disagreement, alone.std(0, correction=0))


def test_a_reward_model_alone_scores_by_its_head_and_agrees_with_itself(tmp_path):
    model = save(tmp_path, seed=1)
    for aggregate in (mean, minimum):
        found = load(tmp_path, aggregate)(BATCH)
        assert torch.equal(found.values, scalar_head.rewards(model, BATCH))
        assert found.disagreement.tolist() == [0.0, 0.0]


def test_members_are_in_the_order_of_their_numbers(tmp_path):
    for number in (10, 2, 0):
        save(tmp_path / str(number), seed=number)
    assert [path.name for path in ensemble.folders(tmp_path)] == ["0", "2", "10"]


def test_no_gradient_flows_and_training_mode_is_left(tmp_path):
    save(tmp_path, seed=1)
    models = load(tmp_path, mean)
    models.members[0].train()
    assert not models(BATCH).values.requires_grad
    assert not models.members[0].training


@pytest.mark.parametrize("inside", [[], ["notes"], ["0", "latest"], ["0", "1.5"]])
def test_a_folder_that_is_neither_is_refused(tmp_path, inside):
    for name in inside:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").touch()
    with pytest.raises(ValueError, match=r"expected in .* a model .* found"):
        ensemble.folders(tmp_path)


def test_a_member_without_a_model_and_a_path_that_is_not_there_are_refused(tmp_path):
    save(tmp_path / "0", seed=0)
    (tmp_path / "1").mkdir()
    with pytest.raises(ValueError, match=r"found \['0', '1'\]"):
        ensemble.folders(tmp_path)
    with pytest.raises(ValueError, match="found nothing"):
        ensemble.folders(tmp_path / "missing")


DATA = Path("data")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def scorer_save(word, seed):
    model = scalar_head.from_policy(checkpoint("llama"), PAD, compute(), CPU, head_seed=seed)
    policy.save(model, model_tokenizer.train_tokenizer(["1"], 700), DATA / word)
    return model.eval()


@pytest.mark.parametrize("stage", ["train_reward_model", "train_outcome_reward"])
def test_a_reward_model_and_an_outcome_model_score_by_their_head(stage):
    word = f"{stage}/sft/reward_model"
    model = scorer_save(word, seed=1)
    found = ensemble.load_scorer(DATA / word, minimum, compute(), CPU)([GROUP])
    torch.testing.assert_close(found.values, scalar_head.rewards(model, BATCH))


def test_an_ensemble_scores_by_its_heads_aggregated():
    word = "assemble_ensembles/ensembles/sft"
    models = [scorer_save(f"{word}/{number}", seed=number) for number in range(3)]
    alone = torch.stack([scalar_head.rewards(model, BATCH) for model in models])
    found = ensemble.load_scorer(DATA / word, minimum, compute(), CPU)([GROUP])
    torch.testing.assert_close(found.values, alone.amin(0))
    torch.testing.assert_close(found.disagreement, alone.std(0, correction=0))


def test_any_split_into_groups_and_any_numbers_of_theirs_give_the_same_scores():
    scorer_save("train_reward_model/sft/reward_model", seed=1)
    score = ensemble.load_scorer(
        DATA / "train_reward_model/sft/reward_model", minimum, compute(), CPU
    )
    parts = [
        Group(prompt_ids=[5, 6], completions=[ids], indices=[number])
        for number, ids in ((4, [7, 8, 1]), (9, [9]))
    ]
    torch.testing.assert_close(score(parts).values, score([GROUP]).values)
