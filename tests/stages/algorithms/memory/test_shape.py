import pytest
from step_memory import BIGGER, EMBEDDED, build
from tiny_checkpoints import compute, load

from stages.algorithms.memory.shape import (
    PUBLISHED,
    adapters,
    from_config,
    linears,
    nearest_published,
    parameters,
)
from stages.models import size

# As the models' cards and checkpoints count them.
KNOWN_SIZES = {
    "qwen2.5-0.5b": 494_032_768,
    "qwen3-0.6b": 596_049_920,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
}


def test_published_models_have_the_parameters_that_they_are_known_for():
    shapes = PUBLISHED.items()
    assert {name: parameters(one, "language_model") for name, one in shapes} == KNOWN_SIZES


def test_a_size_names_the_nearest_by_ratio():
    assert nearest_published(8e9) == "llama-3.1-8b"
    assert nearest_published(7e9) == "qwen2.5-7b"
    # 1.54 to 2.2 is a factor of 1.43, 2.2 to 3.09 one of 1.40
    assert nearest_published(2.2e9) == "qwen2.5-3b"


@pytest.mark.parametrize("shape", [EMBEDDED, BIGGER], ids=["embedded", "bigger"])
@pytest.mark.parametrize("head", ["language_model", "scalar"])
def test_parameters_are_those_of_the_model_that_has_the_shape(shape, head):
    model = build(shape, head, compute(), 0)
    assert parameters(shape, head) == sum(p.numel() for p in model.parameters())


def test_adapters_are_those_that_peft_attaches():
    trained = size.measure(build(BIGGER, "language_model", compute(), 4))["trained_parameters"]
    assert adapters(BIGGER, 4) == trained


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_config_says_the_shape(family):
    model = load(family)
    shape = from_config(model.config.to_dict())
    assert parameters(shape, "language_model") == sum(p.numel() for p in model.parameters())
    # [4 heads of 8 dimensions, where qwen3 says so]
    assert linears(shape)[0] == (16, 32 if family == "qwen3" else 16)


def test_another_architecture_is_refused():
    with pytest.raises(ValueError, match=r"model_type .* found 'gpt2'"):
        from_config(load("gpt2").config.to_dict())
