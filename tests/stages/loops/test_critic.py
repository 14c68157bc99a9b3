from functools import partial

import pytest
import torch
from stages.loops.critic import ValueConfig
from tiny_checkpoints import CPU, PAD, checkpoint, compute, load
from tiny_rollouts import decode, make_sampler

from stages.loops import critic
from stages.loops.rollouts import Actor
from stages.models import scalar_head
from stages.models.policy import Policy
from stages.models.row_policy import LoraConfig


def save(path, seed):
    model = scalar_head.init_scalar_model(checkpoint("llama"), PAD, compute(), CPU, head_seed=seed)
    model.save_pretrained(path)
    return model


def make(path, init="reward_model"):
    config = ValueConfig(init=init, clip=0.2, coef=1.0, warmup_steps=0)
    no_adapters = LoraConfig(rank=0, alpha=16)
    model = load("llama")
    actor = Actor(
        policy=Policy(model), reference=None, sampler=make_sampler(model), decode=decode,
        pad_id=PAD, compute=compute(),
    )  # fmt: skip
    return critic.load(config, actor, partial(checkpoint, "llama"), path, no_adapters, 0)


def test_from_an_ensemble_the_value_model_starts_as_its_first_member(tmp_path):
    first, _ = save(tmp_path / "0", seed=0), save(tmp_path / "1", seed=1)
    assert torch.equal(make(tmp_path).model.score.weight, first.score.weight)
    assert not torch.equal(make(tmp_path / "1").model.score.weight, first.score.weight)


def test_from_the_policy_it_starts_under_a_head_of_zeros_whatever_the_reward_model(tmp_path):
    assert not make(tmp_path / "missing", init="policy").model.score.weight.any()


def test_without_a_reward_model_to_start_from_it_says_so(tmp_path):
    (tmp_path / "no_model").write_text("none")
    with pytest.raises(ValueError, match=r"expected in .*no_model a model .* found nothing"):
        make(tmp_path / "no_model")
