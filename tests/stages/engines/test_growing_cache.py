import pytest
import torch
from tiny_checkpoints import FAMILIES, load, random_ids

from stages.engines.growing_cache import GrowingCache, GrowingLayer


def states(generator, length, batch=2):
    return torch.randn(batch, 3, length, 4, generator=generator)


def test_it_holds_what_was_written_in_order():
    generator = torch.Generator().manual_seed(0)
    layer = GrowingLayer(10)
    written = [(states(generator, n), states(generator, n)) for n in (4, 1, 1)]
    for keys, values in written:
        found_keys, found_values = layer.update(keys, values)
    assert torch.equal(found_keys, torch.cat([keys for keys, _ in written], 2))
    assert torch.equal(found_values, torch.cat([values for _, values in written], 2))
    assert layer.get_seq_length() == 6


def test_growing_writes_in_place_without_a_copy():
    layer = GrowingLayer(10)
    first, _ = layer.update(torch.ones(2, 3, 4, 4), torch.ones(2, 3, 4, 4))
    second, _ = layer.update(torch.ones(2, 3, 1, 4), torch.ones(2, 3, 1, 4))
    assert first.data_ptr() == second.data_ptr()


def test_rows_are_kept_repeated_and_reordered():
    generator = torch.Generator().manual_seed(0)
    layer = GrowingLayer(10)
    keys, values = states(generator, 4), states(generator, 4)
    layer.update(keys, values)
    rows = torch.tensor([1, 0, 1])
    layer.select(rows)
    more = states(generator, 1, batch=3)
    found, _ = layer.update(more, more)
    assert torch.equal(found, torch.cat([keys[rows], more], 2))


def test_more_positions_than_there_is_room_for_are_refused():
    layer = GrowingLayer(3)
    with pytest.raises(AssertionError, match="cache of 3 positions asked to hold 4"):
        layer.update(torch.ones(1, 1, 4, 2), torch.ones(1, 1, 4, 2))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_token_by_token_are_those_without_a_cache(family):
    model = load(family).eval()
    generator = torch.Generator().manual_seed(0)
    ids = torch.tensor([random_ids(generator, 12) for _ in range(3)])
    cache = GrowingCache(model.config.num_hidden_layers, 12)
    parts = [model(ids[:, :5], past_key_values=cache).logits]
    parts += [model(ids[:, t : t + 1], past_key_values=cache).logits for t in range(5, 12)]
    torch.testing.assert_close(torch.cat(parts, 1), model(ids).logits, rtol=1e-4, atol=1e-4)
