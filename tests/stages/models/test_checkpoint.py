import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_checkpoints import FAMILIES, build, checkpoint
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from stages.models.checkpoint import read


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_is_read_as_it_was_saved_tied_ones_included(family):
    model = read(AutoModelForCausalLM, checkpoint(family), new=frozenset())
    expected = build(family).state_dict()
    for name, weight in model.state_dict().items():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, expected[name]), name


def test_a_checkpoint_that_lacks_a_weight_is_refused_by_its_name(tmp_path):
    build("llama").save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"missing .* model\.layers\.1\.mlp\.up_proj\.weight"):
        read(AutoModelForCausalLM, tmp_path, new=frozenset())


def test_a_policy_read_as_a_reward_model_lacks_its_head_unless_a_new_one_is_meant():
    with pytest.raises(ValueError, match=r"score\.weight"):
        read(AutoModelForSequenceClassification, checkpoint("llama"), new=frozenset(), num_labels=1)
    head = frozenset({"score.weight"})
    model = read(AutoModelForSequenceClassification, checkpoint("llama"), new=head, num_labels=1)
    assert model.get_parameter("score.weight").shape == (1, 16)


def test_pickled_weights_are_never_read(tmp_path):
    model = build("llama")
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        read(AutoModelForCausalLM, tmp_path, new=frozenset())
