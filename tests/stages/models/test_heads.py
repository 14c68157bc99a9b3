"""Every head reads like transformers: the numbers and gradients of its own forward pass of one row,
whatever rows are shared, packed, cut into micro-batches or padded.

A new head is a row of HEADS, a new family one of `tiny_checkpoints.FAMILIES`, a new way to lay rows
out one of LAYOUTS.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from tiny_checkpoints import (
    CPU,
    EOS,
    FAMILIES,
    PAD,
    checkpoint,
    compute,
    exact,
    gradients,
    load,
    load_exact,
    random_ids,
)
from torch import Tensor, nn
from transformers import PreTrainedModel

from stages import models
from stages.models import attention, policy, process_head, scalar_head
from stages.models import batch as batches
from stages.models.batch import Batch, Group, micro_batches
from stages.models.policy import Policy
from stages.models.process_head import ProcessHead, TokenizedSolution, step_end_indices
from stages.models.scalar_head import ScalarHead

TEMPERATURE, STEP = 0.8, 2
LAYOUTS = {
    "a row each": {"row_tokens": 0},
    "a row each, padded little": {"row_tokens": 0, "max_tokens": 30},
    "a micro-batch each": {"row_tokens": 64, "max_tokens": 1},
    "some share a prompt": {"row_tokens": 16},
    "all share a prompt": {"row_tokens": 64, "max_tokens": 40},
    "packed": {"row_tokens": 0, "pack_tokens": 30},
    "packed, and some share a prompt": {"row_tokens": 16, "pack_tokens": 30, "max_tokens": 60},
    "one row": {"row_tokens": 128, "pack_tokens": 128},
    "packed, by their starts": {"row_tokens": 0, "pack_tokens": 30},
}


def make_groups() -> list[Group]:
    """Of uneven lengths; some tokens of the second and the last group do not count."""
    stream = torch.Generator().manual_seed(0)
    groups, start = list[Group](), 0
    for prompt, lengths in [(5, [3, 1, 7]), (9, [2, 4]), (1, [4, 4]), (3, [8])]:
        indices, start = range(start, start + len(lengths)), start + len(lengths)
        completions = [[*random_ids(stream, length - 1), EOS] for length in lengths]
        groups.append(Group(prompt_ids=random_ids(stream, prompt), completions=completions,
                            indices=indices))  # fmt: skip
    groups[1] = replace(groups[1], insertions=[[(1, [7, 8, 9])], [(2, [10]), (3, [11, 12])]])
    groups[3] = replace(groups[3], insertions=[[(4, [13, 14])]])
    return groups


def draw_(weight: Tensor) -> None:
    nn.init.normal_(weight, std=0.5, generator=torch.Generator().manual_seed(1))


@dataclass(frozen=True, kw_only=True)
class Head:
    """`ours`: values of each completion of a batch; `plain`: of a prompt and what follows it, at
    the places that count, by transformers' own forward pass."""

    kind: type[nn.Module]
    load: Callable[[str], PreTrainedModel]
    ours: Callable[[PreTrainedModel, Batch], Sequence[Tensor]]
    plain: Callable[[PreTrainedModel, list[int], list[int], list[int]], Tensor]
    groups: Callable[[], list[Group]] = make_groups


@functools.cache
def teacher(family: str) -> Policy:
    return Policy(load_exact(family, 1).train())


def policy_values(model: PreTrainedModel, batch: Batch) -> Sequence[Tensor]:
    result = Policy(model)(batch, temperature=TEMPERATURE, entropy_gradient=True)
    return counted(torch.stack(result, -1), batch)


def plain_policy(model: PreTrainedModel, prompt: list[int], ids: list[int], places: list[int]):
    logits = next_logits(model, prompt, ids, places)
    return torch.stack([chosen(logits / TEMPERATURE, ids, places),
                        torch.distributions.Categorical(logits=logits / TEMPERATURE).entropy()],
                       -1)  # fmt: skip


def divergences(model: PreTrainedModel, batch: Batch) -> Sequence[Tensor]:
    result = Policy(model).compute_forward_kl(
        batch, teacher(model.config.model_type), temperature=TEMPERATURE, learn_likelihood=True
    )
    return counted(torch.stack(result, -1), batch)


def plain_divergences(model: PreTrainedModel, prompt: list[int], ids: list[int], places: list[int]):
    logits = next_logits(model, prompt, ids, places)
    with torch.no_grad():
        frozen = teacher(model.config.model_type).model
        other = next_logits(frozen, prompt, ids, places) / TEMPERATURE
    p, q = other.softmax(-1), (logits / TEMPERATURE).log_softmax(-1)
    divergence = (p * (other.log_softmax(-1) - q)).sum(-1)
    return torch.stack([divergence, chosen(logits, ids, places)], -1)


def next_logits(model: PreTrainedModel, prompt: list[int], ids: list[int], places: list[int]):
    logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
    return logits[places]


def chosen(logits: Tensor, ids: list[int], places: list[int]) -> Tensor:
    return logits.log_softmax(-1)[range(len(places)), [ids[place] for place in places]]


def counted(values: Tensor, batch: Batch) -> Sequence[Tensor]:
    assert not values[~batch.mask].any(), "0 where no token is"
    return [row[mask] for row, mask in zip(values, batch.mask, strict=True)]


def load_scalar(family: str) -> PreTrainedModel:
    model = scalar_head.init_scalar_model(checkpoint(family), PAD, compute(), CPU)
    draw_(model.score.weight)
    return exact(model)


def rewards(model: PreTrainedModel, batch: Batch) -> Sequence[Tensor]:
    return ScalarHead(model)(batch).split(1)


def plain_reward(model: PreTrainedModel, prompt: list[int], ids: list[int], places: list[int]):
    return model(torch.tensor([[*prompt, *ids]])).logits[0]


def values(model: PreTrainedModel, batch: Batch) -> Sequence[Tensor]:
    return counted(ScalarHead(model)(batch, each_token=True), batch)


def plain_values(model: PreTrainedModel, prompt: list[int], ids: list[int], places: list[int]):
    hidden = model.base_model(torch.tensor([[*prompt, *ids]])).last_hidden_state
    return model.score(hidden)[0, len(prompt) - 1 : -1, 0][places]


SOLUTIONS = [  # one policy has written the step token itself, which is no end of a step
    TokenizedSolution(prompt_ids=[4, 5, 6, 7], steps=[[8, 9, 3], [5]]),
    TokenizedSolution(prompt_ids=[9, 8, 7, 6, 5, 4], steps=[[10, STEP, 11], [12, EOS]]),
    TokenizedSolution(prompt_ids=[4, 5, 6, 7], steps=[[11, 12], [9, 8, 7, 6], [5, EOS]]),
    TokenizedSolution(prompt_ids=[4, 5, 6, 7], steps=[[7, EOS]]),
]


def load_process(family: str) -> PreTrainedModel:
    model = process_head.init_process_model(checkpoint(family), STEP, compute(), CPU)
    for parameter in process_head.get_head(model).parameters():
        draw_(parameter)
    return exact(model)


def solution_groups() -> list[Group]:
    model = ProcessHead(load("llama"), compute(row_tokens=1000))
    model.model.config.step_token_id = STEP
    return process_head.solution_groups(model, SOLUTIONS, range(len(SOLUTIONS)))


def step_logits(model: PreTrainedModel, batch: Batch) -> Sequence[Tensor]:
    ends = [step_end_indices(SOLUTIONS[i].steps) for i in batch.indices]
    return ProcessHead(model)(batch, ends).split([*map(len, ends)])


def plain_steps(model: PreTrainedModel, prompt: list[int], ids: list[int], places: list[int]):
    (steps,) = (s.steps for s in SOLUTIONS if [t for p in s.steps for t in (*p, STEP)] == ids)
    ends = [sum(map(len, steps[: i + 1])) + i + len(prompt) for i in range(len(steps))]
    return model(torch.tensor([[*prompt, *ids]])).logits[0, ends]


HEADS = {
    "policy": Head(kind=Policy, load=load_exact, ours=policy_values, plain=plain_policy),
    "teacher": Head(kind=Policy, load=load_exact, ours=divergences, plain=plain_divergences),
    "reward": Head(kind=ScalarHead, load=load_scalar, ours=rewards, plain=plain_reward),
    "value": Head(kind=ScalarHead, load=load_scalar, ours=values, plain=plain_values),
    "process": Head(kind=ProcessHead, load=load_process, ours=step_logits, plain=plain_steps,
                    groups=solution_groups),
}  # fmt: skip


def test_no_head_is_without_a_row():
    modules = [importlib.import_module(f"stages.models.{module.name}")
               for module in pkgutil.iter_modules(models.__path__)]  # fmt: skip
    classes = [item for module in modules for item in vars(module).values()
               if isinstance(item, type) and issubclass(item, nn.Module)
               and item.__module__ == module.__name__]  # fmt: skip
    assert {*classes} == {head.kind for head in HEADS.values()}


def weigh(rows: dict[int, Tensor]) -> Tensor:
    """A sum in which every completion counts differently, so that a mix-up has another gradient."""
    return sum(((1 + i) * row.sum() for i, row in rows.items()), torch.zeros(()))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", HEADS)
def test_numbers_and_gradients_are_those_of_transformers_in_every_layout(name, family, monkeypatch):
    head = HEADS[name]
    model, groups = head.load(family).eval(), head.groups()
    expected = {
        index: head.plain(model, [*group.prompt_ids], *whole)
        for group in groups
        for index, whole in zip(group.indices, group.whole_completions(), strict=True)
    }
    weigh(expected).backward()
    expected_gradients = gradients(model)
    assert min(gradient.abs().max() for gradient in expected_gradients.values()) > 0
    model.train()  # checkpoints have dropout, which has to be off
    for layout, changes in LAYOUTS.items():
        if layout == "packed, by their starts":  # as on a GPU with FlashAttention
            monkeypatch.setattr(
                batches, "make_shared_mask", lambda _, prompts, __: attention.make_starts(prompts)
            )
        for order in (1, -1):
            model.zero_grad()
            actual = dict[int, Tensor]()
            for batch in micro_batches(groups[::order], compute(**changes), PAD, CPU):
                part = dict(zip(batch.indices, head.ours(model, batch), strict=True))
                weigh(part).backward()
                actual |= part
            assert actual.keys() == expected.keys()
            for index, row in expected.items():
                close(actual[index], row, f"{layout}: completion {index}")
            actual_gradients = gradients(model)
            assert actual_gradients.keys() == expected_gradients.keys()
            for weight, gradient in expected_gradients.items():
                close(actual_gradients[weight], gradient, f"{layout}: gradient of {weight}")


def close(actual: Tensor, expected: Tensor, place: str) -> None:
    assert actual.shape == expected.shape, place
    gap = (actual.detach() - expected.detach()).abs().max()
    assert gap <= 1e-9 * expected.detach().abs().max(), f"{place}: {gap:.1e}"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["policy", "reward", "process"])
def test_activations_that_are_recomputed_give_the_same_bits(name, family):
    head, groups, computed = HEADS[name], HEADS[name].groups(), []
    for checkpointing in (False, True):
        model = head.load(family).train()
        if checkpointing:
            policy.prepare_model(model, compute(gradient_checkpointing=True), CPU)
            assert model.is_gradient_checkpointing
        for batch in micro_batches(groups, compute(), PAD, CPU):
            weigh(dict(enumerate(head.ours(model, batch)))).backward()
        computed.append(gradients(model))
    assert computed[0].keys() == computed[1].keys()
    assert all(torch.equal(computed[1][name], value) for name, value in computed[0].items())


def test_likelihoods_have_gradients_on_request_alone_and_a_teacher_never():
    model, (batch, *_) = load("llama"), micro_batches(make_groups(), compute(), PAD, CPU)
    assert not Policy(model)(batch, temperature=1.0).entropies.requires_grad
    other = Policy(load("llama", 1).train())
    for learn in (True, False):
        result = Policy(model).compute_forward_kl(
            batch, other, temperature=1.0, learn_likelihood=learn
        )
        assert result.logprobs.requires_grad == learn
        result.divergences.sum().backward()
    assert not gradients(other.model)
    assert other.model.training


@pytest.mark.parametrize("family", FAMILIES)
def test_new_heads_begin_without_an_opinion_and_drawn_ones_with_that_of_their_seed(family):
    def init(**seed):
        return scalar_head.init_scalar_model(checkpoint(family), PAD, compute(), CPU, **seed)

    process = process_head.init_process_model(checkpoint(family), STEP, compute(), CPU)
    scores = process_head.score_steps(ProcessHead(process), SOLUTIONS)
    assert scores == [[0.5] * len(solution.steps) for solution in SOLUTIONS]
    assert not init().score.weight.any()
    heads = [init(head_seed=seed).score.weight.detach() for seed in (0, 0, 1, 2, 3, 4)]
    assert torch.equal(heads[0], heads[1])
    assert len(torch.cat(heads).unique(dim=0)) == 5
    # 5 heads of 16 numbers with variance 1 / 17: the mean square has a relative error of 16 %.
    assert torch.cat(heads[1:]).square().mean().item() == pytest.approx(1 / 17, rel=0.5)


@pytest.mark.parametrize("name", HEADS)
def test_frozen_bodies_have_the_compute_dtype_and_their_heads_float32(name):
    model = HEADS[name].load("qwen3").float()
    frozen = policy.prepare_model(model, compute(dtype="bfloat16"), CPU, trained=False)
    assert {weight.dtype for weight in frozen.base_model.parameters()} == {torch.bfloat16}
    head = [w.dtype for n, w in frozen.named_parameters() if not n.startswith("model.")]
    assert set(head) == {torch.bfloat16 if HEADS[name].kind is Policy else torch.float32}
    (batch, *_) = micro_batches(HEADS[name].groups(), compute(), PAD, CPU)
    if HEADS[name].kind is not Policy:
        with torch.autocast("cpu", torch.bfloat16):
            assert {row.dtype for row in HEADS[name].ours(frozen, batch)} == {torch.float32}
