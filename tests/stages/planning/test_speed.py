"""Rates, the recommendation and costs of passes worked by hand; a tiny model timed in processes."""

import json

import pytest
import torch
from transformers import LlamaConfig

from stages.planning import speed, timed_passes
from stages.planning.layers import choose_layers, extend_line, keep_layers
from stages.planning.speed import Arithmetic, Rates
from stages.planning.timed_passes import Cost
from stages.planning.workload import Work

PINNED, NATIVE = Arithmetic("float32", "pinned"), Arithmetic("float32", "native")
BFLOAT16 = Arithmetic("bfloat16", "native")
BASE = LlamaConfig(
    hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=96, vocab_size=60,
)  # fmt: skip
REQUEST = {
    "base": json.loads(BASE.to_json_string(use_diff=False)),
    "compute": {
        "dtype": "float32", "gradient_checkpointing": False, "max_tokens": 256, "row_tokens": 128,
        "pack_tokens": 64, "max_batch": 16,
    },
    "lora": {"rank": 0, "alpha": 16}, "prompt": 7, "completion": 5, "batch_size": 4,
}  # fmt: skip


def test_each_kind_of_pass_has_its_rate_and_decode_steps_their_seconds():
    rates = Rates(trained=6.0, forward=2.0, sampled=1.0, step=0.5, start=4.0)
    work = Work(tokens=0, trained=60, forward=10, sampled=3, steps=8)
    assert rates.predict_seconds(work) == 10 + 5 + 3 + 4
    assert rates.multiply(4) == Rates(trained=24.0, forward=8.0, sampled=4.0, step=0.125, start=4.0)


def test_rows_of_a_full_pass():
    request = timed_passes.Request(**REQUEST, num_processes=1)
    compute = request.compute.model_copy(update={"rounding": "pinned"})
    model = timed_passes.TimedModel(
        BASE, request.model_copy(update={"compute": compute}), torch.device("cpu")
    )
    assert model.find_largest("sampled") == 16
    assert model.find_largest("forward") == 256 // (7 + 5)
    assert model.find_largest("trained") == 4


def test_rates_side_by_side_add_up():
    parts = [
        {"trained": 6.0, "forward": 2.0, "sampled": 1.0, "step": 0.5, "start": 4.0},
        {"trained": 5.0, "forward": 3.0, "sampled": 2.0, "step": 0.7, "start": 3.0},
    ]
    two = Rates(trained=11.0, forward=5.0, sampled=3.0, step=0.3, start=4.0)
    assert speed.add_rates(parts, 2) == two
    # four, of which two were timed
    four = Rates(trained=22.0, forward=10.0, sampled=6.0, step=0.15, start=4.0)
    assert speed.add_rates(parts, 4) == four


def test_float32_is_timed_pinned_and_native_at_the_same_time():
    usual = [PINNED, NATIVE, BFLOAT16]
    assert [*speed.take_turns(usual, 2)] == [{PINNED: 1, NATIVE: 1}, {BFLOAT16: 2}]
    assert [*speed.take_turns(usual, 3)] == [{PINNED: 2, NATIVE: 1}, {BFLOAT16: 3}]
    assert [*speed.take_turns(usual, 1)] == [{PINNED: 1}, {NATIVE: 1}, {BFLOAT16: 1}]
    two = Arithmetic("float32", "native-2")  # two threads each
    assert [*speed.take_turns([PINNED, two], 2)] == [{PINNED: 2}, {two: 2}]


@pytest.mark.parametrize(
    ("seconds", "best"),
    [
        ((13.0, 11.0, 9.0), PINNED),  # 1.18 and 1.22 times as fast
        ((13.0, 10.0, 9.0), NATIVE),
        ((13.0, 10.0, 7.0), BFLOAT16),
        ((13.0, 11.0, 8.4), BFLOAT16),  # 1.31 times as fast as native
        ((13.0, 11.0, 8.6), PINNED),  # 1.51 times as fast as pinned, 1.28 as native
        ((10.0, 20.0, 8.0), PINNED),
        ((10.0, 20.0, 7.0), BFLOAT16),
    ],
)
def test_a_costlier_arithmetic_is_to_be_much_faster(seconds, best):
    assert speed.recommend(dict(zip((PINNED, NATIVE, BFLOAT16), seconds, strict=True))) == best


def test_the_arithmetic_of_the_plan_is_measured_and_on_a_gpu_it_alone():
    assert speed.list_arithmetics(PINNED, is_gpu=False) == [PINNED, NATIVE, BFLOAT16]
    odd = Arithmetic("bfloat16", "pinned")
    assert speed.list_arithmetics(odd, is_gpu=False) == [PINNED, NATIVE, BFLOAT16, odd]
    two = Arithmetic("float32", "native-2")
    assert speed.list_arithmetics(two, is_gpu=False)[1] == two
    assert speed.list_arithmetics(odd, is_gpu=True) == [odd]


def test_costs_are_a_line_over_layers():
    costs = {layers: Cost(1 + 2.0 * layers, 10 * layers) for layers in (2, 6)}
    assert timed_passes.extend_costs(costs, 30) == Cost(1 + 2 * 30, 10 * 30)
    assert timed_passes.extend_costs({2: Cost(5.0, 10)}, 2) == Cost(5.0, 10)


def test_a_line_that_falls_is_a_disturbance():
    costs = {2: Cost(5.0, 10), 6: Cost(2.0, 30)}
    assert timed_passes.extend_costs(costs, 10) == Cost(5.0, 50)


def test_a_decode_step_costs_its_weights_and_its_rows():
    """A prompt of 40 operations read at 20 a second; 3 steps of 0.5 s; a row: 6 operations, 2 s."""
    costs = {rows: Cost(2 + 3 * 0.5 + 2 * rows, 40 + 6 * rows) for rows in (8, 32)}
    assert timed_passes.split_sampling(costs, forward=20.0) == {"sampled": 3.0, "step": 0.5}


def test_where_rows_cost_nothing_a_step_costs_all():
    costs = {8: Cost(8.0, 40 + 6 * 8), 32: Cost(7.5, 40 + 6 * 32)}
    split = timed_passes.split_sampling(costs, forward=20.0)
    assert split["step"] == pytest.approx((8.0 - 2.0) / 3, rel=1e-5)
    assert split["sampled"] == 6 / timed_passes.LEAST


def test_of_many_layers_two_numbers_are_measured():
    assert choose_layers(BASE) == (2,)
    deep = keep_layers(BASE, 30)
    assert (choose_layers(deep), choose_layers(deep, 3)) == ((2, 4), (2, 6))
    assert (deep.num_hidden_layers, BASE.num_hidden_layers) == (30, 2)
    assert extend_line({2: 5.0, 4: 9.0}, 30) == 5 + 2 * 28
    assert extend_line({2: 5.0}, 2) == 5.0


@pytest.mark.slow
def test_processes_side_by_side_have_rates_of_three_kinds():
    rates = speed.measure_rates(REQUEST, [PINNED, NATIVE, BFLOAT16], 2)
    assert set(rates) == {PINNED, NATIVE, BFLOAT16}
    for each in rates.values():
        assert min(each.trained, each.forward, each.sampled, each.start) > 0
        assert each.step >= 0


@pytest.mark.slow
def test_a_model_that_cannot_be_run_is_an_error_with_its_reason():
    broken = REQUEST | {"base": REQUEST["base"] | {"num_attention_heads": 5}}
    with pytest.raises(ValueError, match=r"to run on this machine, found: \w+Error: "):
        speed.measure_rates(broken, [PINNED, NATIVE], 2)
