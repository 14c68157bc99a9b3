"""Each loop in several processes is itself in one: gradients, metrics and weights."""

from pathlib import Path

import pytest
import torch
from several_processes import Trial, in_processes, tokenizer
from tiny_checkpoints import compute, load, plain_logprobs

from stages.config import read_yaml
from stages.models import policy, sharding

TRIALS = read_yaml(Path(__file__).with_name("sharding.yaml"))
QUICK = [name for name in TRIALS if name.startswith("a process without a row")]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in TRIALS]
)
def test_a_loop_in_several_processes_is_that_of_one(name):
    number, loop, settings = TRIALS[name]
    actual = in_processes(number, Trial(loop, **settings))
    expected = in_processes(1, Trial(loop, **settings | {"gradient_checkpointing": False}))
    pairs = [[torch.tensor(gradient) for gradient in pair]
             for pair in zip(actual["gradients"], expected["gradients"], strict=True)]  # fmt: skip
    largest = max(gradient.abs().max().item() for _, gradient in pairs)
    assert largest > (0 if loop == "kto" else 1e-3)
    limit = 1e-7 if loop == "kto" else 1e-6 * largest
    assert all((ours - theirs).abs().max().item() <= limit for ours, theirs in pairs)
    assert len(actual["history"]) == len(expected["history"]) == (1 if loop == "kto" else 4)
    for step, other in zip(actual["history"], expected["history"], strict=True):
        for metrics in (step, other):  # how rows are laid out is another thing in more processes
            metrics.pop("batch/padding_share", None)
        assert step == pytest.approx(other, rel=1e-5, abs=1e-6 if loop == "kto" else 1e-5)
    for weight, values in expected["weights"].items() if loop != "kto" else ():
        ours = torch.tensor(actual["weights"][weight])
        assert torch.allclose(ours, torch.tensor(values), atol=1e-5)
    assert actual["history"][0].get("episode/turns", 2) > 1.2


@pytest.mark.parametrize("rank", [0, 4])
def test_a_gradient_of_two_micro_batches_is_equal_to_the_bit(rank):
    trial = Trial("sft", rank=rank, schedule=[[0, 1]], max_tokens=1)
    actual, expected = in_processes(2, trial), in_processes(1, trial)
    assert actual["gradients"] == expected["gradients"]
    assert any(any(gradient) for gradient in actual["gradients"])


@pytest.mark.slow
@pytest.mark.parametrize(("loop", "rank"), [("process", 4), ("grpo", 0), ("ppo", 4)])
def test_two_processes_go_on_from_a_checkpoint_to_the_same_bits(loop, rank, tmp_path):
    settings = {"rank": rank, "max_tokens": 24}
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
