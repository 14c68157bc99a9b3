"""Compiled layers compute what the others do, and the same bits whatever they saw first."""

import logging
import shutil

import pytest
import torch
from tiny_checkpoints import BLOCKS, CPU, compute, gradients, load
from tiny_rollouts import OPTIM, make_demonstrations, make_sampler
from torch._dynamo.utils import counters
from torch._inductor.runtime.cache_dir_utils import default_cache_dir
from transformers import Qwen3Config, Qwen3ForCausalLM

from stages.loops.sft import SftConfig, train
from stages.loops.state import State
from stages.models import compilation, sharding
from stages.models.batch import Group, eval_no_grad, micro_batches
from stages.models.policy import Policy, prepare_model
from stages.models.row_policy import LoraConfig, add_adapters
from stages.optim import OptimConfig

INDUCTOR = [
    pytest.mark.skipif(
        not shutil.which("g++"), reason="compiles with g++, which is not here; on a GPU: tests.gpu"
    ),
    pytest.mark.weekly,  # minutes of g++
]
PACKED = {"pack_tokens": 32, "gradient_checkpointing": True}
LAYOUTS = [{}, {"row_tokens": 0, "max_tokens": 8}, {"pack_tokens": 32},
           {"gradient_checkpointing": True}]  # fmt: skip
CASES = [("aot_eager", PACKED), pytest.param("inductor", PACKED, marks=INDUCTOR)]
CASES += [pytest.param("aot_eager", layout, marks=pytest.mark.weekly) for layout in LAYOUTS]
GROUPS = [
    Group(prompt_ids=[5, 6, 7], completions=[[8, 9], [10, 11, 12, 1]], indices=[0, 1]),
    Group(prompt_ids=[13], completions=[[14, 15, 16, 17, 18, 1]], indices=[2]),
]
SCHEDULE = [[0, 1, 2, 3], [5, 4], [2, 3, 5]]


@pytest.fixture
def backend(request, monkeypatch, tmp_path):
    monkeypatch.setattr(compilation, "BACKEND", request.param)
    monkeypatch.setattr(compilation, "FOLDER", tmp_path / "compiled")
    monkeypatch.setenv(compilation.CACHE_DIR, default_cache_dir())  # as torch's imports leave it
    # pytest's level of logging has torch write each of its graphs down.
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "disabled", True)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def read(layout, *, num_layers=2, compiled=True):
    """Sum of log-probs of all completions, its gradients, and the number of compiled graphs."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    config = Qwen3Config(**BLOCKS | {"num_hidden_layers": num_layers}, head_dim=8)
    settings = compute(compile=compiled, **layout)
    model = prepare_model(Qwen3ForCausalLM(config), settings, CPU).train()
    total = torch.zeros(())
    for batch in micro_batches(GROUPS, settings, 0, CPU):
        total = total + Policy(model, settings)(batch, temperature=1.0).logprobs.sum()
    total.backward()
    return total.detach(), gradients(model), counters["stats"]["unique_graphs"]


@pytest.mark.slow
@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("backend", "layout"), CASES, indirect=["backend"])
def test_compiled_is_not_compiled_within_rounding(layout):
    expected, actual = (read(layout, compiled=compiled) for compiled in (False, True))
    torch.testing.assert_close(actual[:2], expected[:2], rtol=1e-4, atol=1e-4)
    assert actual[2] > 0
    if compilation.BACKEND == "inductor":
        assert any(compilation.FOLDER.rglob("*.cpp")), "compiled code is kept for later processes"
        kept = read(layout | {"gradient_checkpointing": False})
        torch.testing.assert_close(kept[:2], actual[:2], rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("backend", ["eager"], indirect=True)
def test_one_graph_serves_all_layers():
    numbers = [read({}, num_layers=number)[2] for number in (2, 4)]
    assert 0 < numbers[0] == numbers[1]


def take(state=None, save=None):
    """Steps of SFT from `state` on, in compiled layers: metrics, and the weights after them."""
    torch._dynamo.reset()  # as in another process
    model, state = load("qwen3", compile=True), state or State()
    config = SftConfig(num_epochs=1, batch_size=4, optim=OptimConfig(**OPTIM))
    history = []
    for step in train(Policy(model, compute()), make_demonstrations(6), SCHEDULE, config, state):
        history.append({name: float(value).hex() for name, value in step.metrics.items()})
        if save is not None:
            state.save(save / str(step.index))
    return history, [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.weekly
@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=INDUCTOR)], indirect=True
)
def test_a_run_resumes_to_the_bit_with_compiled_layers(tmp_path):
    expected, whole = take(save=tmp_path)
    rest, resumed = take(State.load(tmp_path / "0"))
    assert rest == expected[1:]
    assert all(map(torch.equal, resumed, whole))


def test_the_first_compiled_pass_of_a_kind_has_a_fixed_size(monkeypatch):
    monkeypatch.setattr(torch.nn.Module, "compile", lambda *_, **__: None)
    limits, ids = {"row_tokens": 0, "max_tokens": 8}, torch.tensor([[5, 8, 8]])
    model, seen = load("llama", compile=True, **limits), []
    model.model.embed_tokens.register_forward_hook(
        lambda _module, _args, output: seen.append(tuple(output.shape[:2]))
    )
    with eval_no_grad(model):
        with compilation.uncompiled():  # as `check_cache`, and judges, read a policy
            model(input_ids=ids, use_cache=False)
        model(input_ids=ids, use_cache=False)
    assert seen == [(1, 3), (1, 128), (1, 3)]
    seen.clear()
    disable = add_adapters(model, LoraConfig(rank=4, alpha=16), 0)
    policy = Policy(model, compute(**limits), 0, disable)
    for adapted in (True, True, False, False):
        for batch in micro_batches(GROUPS, policy.compute, 0, CPU):
            policy(batch, temperature=1.0, adapted=adapted)
    assert [shape for shape in seen if shape[1] == 128] == [(1, 128), (2, 128)] * 2
    assert seen[0] == (1, 128)


def test_sampling_runs_layers_as_they_are(monkeypatch):
    def refuse(*_):
        raise AssertionError("compiled")

    monkeypatch.setattr(compilation, "BACKEND", refuse)
    settings = {"num_samples": 2, "temperature": 1.0, "max_new_tokens": 4}
    plain, compiled = (
        make_sampler(load("llama", compile=choice)).sample([[5, 6]], [0], **settings)
        for choice in (False, True)
    )
    assert compiled == plain


@pytest.mark.parametrize(("setting", "device", "parameters", "ranks", "expected"), [
    ("auto", "cpu", 10**6, 1, False), ("auto", "cuda", 10**3, 1, False),
    ("auto", "cuda", 10**4, 1, True), ("auto", "cuda", 10**4, 2, False),
    (True, "cpu", 10**3, 1, True), (False, "cuda", 10**4, 1, False),
    (True, "cuda", 10**4, 2, None),
])  # fmt: skip
def test_auto_compiles_large_models_on_a_gpu_and_sharded_ones_are_refused(
    setting, device, parameters, ranks, expected, monkeypatch
):
    monkeypatch.setattr(compilation, "AUTO_PARAMETERS", 10**4)
    monkeypatch.setattr(sharding, "get_world_size", lambda: ranks)
    model = torch.nn.Linear(parameters, 1, bias=False)
    model._no_split_modules = ["Linear"]
    if expected is not None:
        assert compilation.is_chosen(setting, model, torch.device(device)) is expected
        return
    with pytest.raises(ValueError, match="num_processes above 1"):
        compilation.is_chosen(setting, model, torch.device(device))
