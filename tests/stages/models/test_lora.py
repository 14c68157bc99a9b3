import pytest
import torch
from tiny_checkpoints import CPU, FAMILIES, PAD, checkpoint, compute, load

from stages.models import lora, policy, scalar_head
from stages.models.batch import Group, collate
from stages.models.lora import LoraConfig

IDS = torch.tensor([[3, 4, 5, 6]])
OFF, RANK_4 = LoraConfig(rank=0, alpha=8), LoraConfig(rank=4, alpha=8)


def weights(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def learn(model):
    """A few steps towards some tokens, or some reward."""
    batch = collate(
        [Group(prompt_ids=[3, 4], completions=[[5, 6], [7]], indices=[0, 1])], 64, PAD, CPU
    )
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(3):
        if hasattr(model, "score"):
            loss = -scalar_head.rewards(model, batch).sum()
        else:
            loss = -policy.completion_logprobs(model, batch, temperature=1.0)[0].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_rank_0_leaves_the_model_as_it_is():
    model = load("llama")
    before = weights(model)
    assert lora.attach(model, OFF, 0)() is model
    assert weights(model).keys() == before.keys()
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore:fan_in_fan_out")
def test_only_adapters_are_trained_and_the_merged_model_is_the_same_function(family):
    model = load(family)
    untouched = model(IDS).logits
    merged = lora.attach(model, RANK_4, 0)
    assert torch.equal(model(IDS).logits, untouched), "adapters start as nothing"
    before = weights(model)
    learn(model)
    for name, weight in weights(model).items():
        assert torch.equal(weight, before[name]) != (".lora_" in name), name
    adapted = model(IDS).logits
    assert not torch.allclose(adapted, untouched, atol=1e-3)
    final = merged()
    torch.testing.assert_close(final(IDS).logits, adapted, rtol=1e-4, atol=1e-4)
    assert weights(final).keys() == weights(load(family)).keys()


def test_the_merged_model_is_saved_as_an_ordinary_checkpoint(tmp_path):
    model = load("llama")
    merged = lora.attach(model, RANK_4, 0)
    learn(model)
    adapted = model.eval()(IDS).logits
    merged().save_pretrained(tmp_path)
    again = policy.load(tmp_path, compute(), CPU).eval()
    torch.testing.assert_close(again(IDS).logits, adapted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore:fan_in_fan_out")
def test_a_checkpoint_on_the_way_is_merged_in_a_copy(family):
    model = load(family)
    merged = lora.attach(model, RANK_4, 0)
    learn(model)
    before, adapted = weights(model), model(IDS).logits
    on_the_way = merged(going_on=True)
    torch.testing.assert_close(on_the_way(IDS).logits, adapted, rtol=1e-4, atol=1e-4)
    assert weights(on_the_way).keys() == weights(load(family)).keys()
    after = weights(model)
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    assert after.keys() == before.keys()
    assert torch.equal(model(IDS).logits, adapted)


def test_without_adapters_a_checkpoint_is_the_model_itself():
    model = load("llama")
    assert lora.attach(model, OFF, 0)(going_on=True) is model


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore:fan_in_fan_out")
def test_a_scalar_head_is_trained_whole_and_merged(family):
    model = scalar_head.from_policy(checkpoint(family), PAD, compute(), CPU)
    merged = lora.attach(model, RANK_4, 0)
    learn(model)
    batch = collate([Group(prompt_ids=[3], completions=[[5, 6]], indices=[0])], 64, PAD, CPU)
    adapted = scalar_head.rewards(model, batch)
    final = merged()
    assert final.score.weight.any()
    torch.testing.assert_close(scalar_head.rewards(final, batch), adapted, rtol=1e-4, atol=1e-4)


def test_adapters_are_drawn_from_the_seed():
    drawn = []
    for seed in (0, 0, 1):
        model = load("llama")
        lora.attach(model, RANK_4, seed)
        drawn.append(torch.cat([w.flatten() for n, w in weights(model).items() if "lora_A" in n]))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_with_gradient_checkpointing_the_adapters_still_get_their_gradients():
    found = []
    for checkpointing in (False, True):
        model = load("llama", gradient_checkpointing=checkpointing).train()
        lora.attach(model, RANK_4, 0)
        learn(model)
        found.append(torch.cat([w.flatten() for n, w in weights(model).items() if "lora_B" in n]))
    assert found[0].any()
    torch.testing.assert_close(found[0], found[1])
