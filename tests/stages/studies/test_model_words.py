import pytest
from tiny_checkpoints import checkpoint

from stages.algorithms.memory.shape import PUBLISHED
from stages.studies import memory

WIDTHS = "hidden=512,layers=8,heads=8,kv_heads=4,intermediate=1408,vocab=4000"


def test_a_model_is_a_folder_a_name_a_size_or_widths():
    assert memory.named_shape("Llama-3.1-8B") is memory.named_shape("8b")
    assert memory.named_shape("500M") is PUBLISHED["qwen2.5-0.5b"]
    assert memory.named_shape(str(checkpoint("llama"))).hidden == 16
    found = memory.named_shape(WIDTHS)
    assert (found.kv_heads, found.head_dim, found.tied) == (4, 64, True)


@pytest.mark.parametrize(
    "word",
    [
        "no-such",
        "hidden=1",
        WIDTHS.replace("heads=8", "heads=0", 1),
        WIDTHS + ",depth=3",
        WIDTHS + "x",
    ],
)
def test_another_word_is_refused_with_what_is_expected(word):
    with pytest.raises(ValueError, match="--model: expected"):
        memory.named_shape(word)


def test_a_hub_id_is_not_fetched():
    with pytest.raises(ValueError, match=r"found 'Qwen/Qwen3-0\.6B'"):
        memory.base({"path": "Qwen/Qwen3-0.6B", "revision": "c"})
