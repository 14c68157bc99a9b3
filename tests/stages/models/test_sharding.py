"""Each loop in two processes is itself in one: gradients, metrics and weights."""

import pytest
import torch
from several_processes import Trial, in_processes, tokenizer
from tiny_checkpoints import compute, load, plain_logprobs

from stages.models import policy, sharding

SEVERAL_BATCHES = {"max_tokens": 24}
LAYOUT = "batch/padding_share"
"""The one metric of how rows are laid out, which more processes lay out otherwise."""


def assert_same(actual, expected):
    pairs = [[torch.tensor(gradient) for gradient in pair]
             for pair in zip(actual["gradients"], expected["gradients"], strict=True)]  # fmt: skip
    largest = max(gradient.abs().max().item() for _, gradient in pairs)
    assert largest > 1e-3
    assert all((ours - theirs).abs().max().item() <= 1e-6 * largest for ours, theirs in pairs)
    assert len(actual["history"]) == len(expected["history"]) == 4
    for step, other in zip(actual["history"], expected["history"], strict=True):
        assert step.keys() == other.keys()
        for name in step.keys() - {LAYOUT}:
            assert step[name] == pytest.approx(other[name], rel=1e-5, abs=1e-5), name
    for name, values in expected["weights"].items():
        assert torch.allclose(
            torch.tensor(actual["weights"][name]), torch.tensor(values), atol=1e-5
        )


# With the rank of adapters; 0: none.
LOOPS = [
    ("sft", 0), ("sft", 4), ("forward_kl", 0), ("dpo", 0), ("dpo", 4), ("reward", 0),
    ("process", 4), ("grpo", 0), ("grpo", 4), ("grpo_twice", 0), ("ppo", 0), ("ppo", 4),
    ("grpo_in_episodes", 0),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("loop", "rank"), LOOPS)
def test_a_loop_in_two_processes_is_that_of_one(loop, rank):
    trial = Trial(loop, rank=rank, **SEVERAL_BATCHES)
    actual, expected = in_processes(2, trial), in_processes(1, trial)
    assert_same(actual, expected)
    assert actual["history"][0].get("episode/turns", 2) > 1.2


@pytest.mark.slow
def test_kto_in_two_processes_starts_with_the_gradients_of_one():
    """Adam makes steps of one size of gradients that are all but 0: later ones are chance."""
    trial = Trial("kto", schedule=[[0, 1, 2, 3]], **SEVERAL_BATCHES)
    actual, expected = in_processes(2, trial), in_processes(1, trial)
    for gradient, other in zip(actual["gradients"], expected["gradients"], strict=True):
        assert torch.allclose(torch.tensor(gradient), torch.tensor(other), atol=1e-7)
    assert actual["history"][0] == pytest.approx(expected["history"][0], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("rank", [0, 4])
def test_a_gradient_of_two_micro_batches_is_equal_to_the_bit(rank):
    trial = Trial("sft", rank=rank, schedule=[[0, 1]], max_tokens=1)
    actual, expected = in_processes(2, trial), in_processes(1, trial)
    assert actual["gradients"] == expected["gradients"]
    assert any(any(gradient) for gradient in actual["gradients"])


@pytest.mark.parametrize("family", ["llama", "qwen3"])  # tied and untied matrices
def test_a_process_without_a_row_takes_part(family):
    """Three processes, two rows."""
    trial = Trial("dpo", family=family, schedule=[[0], [1], [2], [3]])
    assert_same(in_processes(3, trial), in_processes(1, trial))


@pytest.mark.slow
def test_processes_recompute_activations_as_one():
    trial = Trial("sft", gradient_checkpointing=True)
    assert_same(in_processes(2, trial), in_processes(1, Trial("sft")))


@pytest.mark.slow
@pytest.mark.parametrize(("loop", "rank"), [("process", 4), ("grpo", 0), ("ppo", 4)])
def test_two_processes_go_on_from_a_checkpoint_to_the_same_bits(loop, rank, tmp_path):
    settings = {"rank": rank, **SEVERAL_BATCHES}
    expected = in_processes(2, Trial(loop, **settings))
    before = in_processes(2, Trial(loop, folder=tmp_path, stop=2, **settings))
    after = in_processes(2, Trial(loop, folder=tmp_path, **settings))
    assert len(before["history"]) == 2
    assert before["history"] + after["history"] == expected["history"]
    assert after["weights"] == expected["weights"]


def test_a_process_holds_its_part_of_the_weights_and_the_first_saves_them_all(tmp_path):
    trial = Trial("sft", rank=4, schedule=[[0, 1]])

    def work():
        result = trial()
        policy.save_model(trial.model, tokenizer(), tmp_path / f"rank-{sharding.get_rank()}")
        return result

    result = in_processes(2, work)
    assert [path.name for path in tmp_path.iterdir()] == ["rank-0"]
    saved = policy.load_policy(tmp_path / "rank-0", compute(), torch.device("cpu"))
    merged = {name: value.tolist() for name, value in policy.merged_weights(saved)}
    assert merged == result["weights"]
    assert plain_logprobs(saved, [3, 4], [5]).isfinite().all()
    trial = Trial("sft", schedule=[[0, 1]])
    whole = in_processes(1, trial)["held"]
    assert whole == sum(parameter.numel() for parameter in load("llama").parameters())
    assert in_processes(2, trial)["held"] <= 0.51 * whole


def test_gathered_values_are_in_order_and_have_the_gradients_of_their_rank():
    parts = [slice(0, 2), slice(2, 3)]  # completions of 2 and 1, and of 3 values

    def work():
        rank, results = sharding.get_rank(), [None, None]
        values = (10.0 * rank + torch.arange(3)).requires_grad_()
        gathered = sharding.gather_completions(values, [2, 1, 3], parts[rank])
        (gathered * torch.arange(6)).sum().backward()
        torch.distributed.all_gather_object(results, (gathered.tolist(), values.grad.tolist()))
        return results

    first, second = in_processes(2, work)
    assert first[0] == second[0] == [0, 1, 2, 10, 11, 12]
    assert (first[1], second[1]) == ([0, 1, 2], [3, 4, 5])
