"""Which steps are kept, and that keeping them changes nothing."""

from functools import partial

import pytest
import torch
from collated import collate
from seed_runs import make_run
from tiny_checkpoints import CPU, PAD, checkpoint, compute, load

from stages.loops import training
from stages.loops.work import Step
from stages.models import model_tokenizer as tokenizers
from stages.models import policy, row_policy
from stages.models.batch import Group
from stages.models.policy import Policy
from stages.models.row_policy import LoraConfig
from stages.runtime import journal

TOKENIZER = tokenizers.train_tokenizer(["3 + 4 = 7"], 700)


@pytest.mark.parametrize(
    ("num_steps", "number", "expected"),
    [
        (32, 3, [8, 16, 24]),
        (8, 3, [2, 4, 6]),
        (10, 3, [3, 5, 8]),
        (8, 0, []),
        (1, 5, []),
        (4, 9, [1, 2, 3]),
        (100, 1, [50]),
    ],
)
def test_steps_are_evenly_spaced_and_never_the_last(num_steps, number, expected):
    assert training.spaced_steps(num_steps, number) == expected


def learn(model, seen, state):
    """Four steps, each of which changes the weights; `seen` are the logits after each."""
    groups = [Group(prompt_ids=[3, 4], completions=[[5, 6], [7]], indices=[0, 1])]
    batch = collate(groups, 64, PAD, CPU)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    for index in range(4):
        (-Policy(model)(batch, temperature=1.0)[0].sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
        seen[index + 1] = logits(model)
        state.step = index + 1
        yield Step(index=index, metrics={})


def logits(model):
    with torch.no_grad():
        return model(torch.tensor([[3, 4, 5, 6]])).logits


@pytest.mark.parametrize("rank", [0, 4])
def test_a_checkpoint_is_the_policy_after_its_step_and_training_goes_on_the_same(rank, tmp_path):
    finals, seen = [], {}
    for kept in ([], [1, 3]):
        model, scratch = load("llama"), tmp_path / str(len(kept))
        scratch.mkdir()
        row_policy.add_adapters(model, LoraConfig(rank=rank, alpha=8), 0)
        save = partial(policy.save_model, model, TOKENIZER)
        with journal.writing(tmp_path / "journal.jsonl") as log:
            outputs = scratch / "saved", scratch / "logged"
            run = make_run(seed=len(kept), folder=scratch, log=log, outputs=outputs)
            outputs[1].mkdir()
            steps = learn(model, seen, run.resume())
            run.record(steps, total=4, num_checkpoints=len(kept), save=save)
            run.write_policy(save)
        finals.append(dict(policy.merged_weights(model)))
        folder = scratch / "logged/checkpoints"
        assert [step for step, _ in training.list_intermediate_policies(folder)] == kept
    for name, weight in finals[0].items():
        assert torch.equal(weight, finals[1][name]), name
    for step, path in training.list_intermediate_policies(tmp_path / "2/logged/checkpoints"):
        assert path.name == f"step-{step:04d}"
        again = logits(policy.load_policy(path, compute(), CPU))
        torch.testing.assert_close(again, seen[step], rtol=1e-4, atol=1e-4)
        assert not torch.allclose(
            again, logits(policy.load_policy(checkpoint("llama"), compute(), CPU))
        )


def test_something_else_in_the_folder_is_refused(tmp_path):
    (tmp_path / "step-0004").mkdir()
    (tmp_path / "step-last").mkdir()
    with pytest.raises(ValueError, match="found 'step-last'"):
        training.list_intermediate_policies(tmp_path)


def test_of_many_steps_the_order_is_that_of_the_numbers(tmp_path):
    for step in (12000, 400, 9000):
        (tmp_path / f"step-{step:04d}").mkdir()
    assert [step for step, _ in training.list_intermediate_policies(tmp_path)] == [400, 9000, 12000]
