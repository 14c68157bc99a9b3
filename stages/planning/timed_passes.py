"""Timed passes of a model of random weights: operations per second of one core or GPU.

    python -m stages.planning.timed_passes

Writes a line when all is imported. Reads requests (`Request`, a line of JSON each) from standard
input, and answers each with the rates of as many processes as it names, which are timed side by
side, a line of JSON each. What is timed is the stages' own code: micro-batches and
log-probabilities of a `Policy`, and `TransformersSampler`; the optimizer is not, a few per cent of
a step. Seconds of a pass are a line over the model's layers (`layers`), so a few layers are timed
and all are computed from them. Seconds of a decode step are a line over the rows of its batch: the
weights are read once, whatever the number of rows, and each row adds its own operations.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig
from transformers.initialization import no_init_weights

import stages
from stages.algorithms import flops
from stages.algorithms.flops import Passes
from stages.config import Params
from stages.engines.transformers import TransformersSampler
from stages.models import device, policy, row_policy, size
from stages.models.batch import Batch, eval_no_grad, make_groups, micro_batches
from stages.models.device import ComputeConfig
from stages.models.policy import Policy
from stages.models.row_policy import LoraConfig
from stages.planning.layers import choose_layers, extend_line, keep_layers
from stages.runtime import process

SECONDS = 0.4
"""Time that a pass of the larger model takes, if as many rows are in a pass of a stage."""
LAYER_GROWTH = 3
"""Layers of the larger of two models, over those of the smaller one."""
REPEATS = 2
"""Passes of each model that are timed, of which the quickest counts."""
SMALLEST = {"forward": 1, "sampled": 8, "trained": 1}
"""Kind of pass -> rows of the smallest."""
ROW_GROWTH = 4
"""Rows of the larger of two sampled batches over those of the smaller one, at least."""
NEW_TOKENS = 4
"""Tokens that each row samples: the first from the prompt's pass, the others in a step each."""
LEAST = 1e-6
"""Seconds that a row is taken to cost at least, where its cost cannot be measured."""
TEXT, PAD = 1, 0
WEIGHT = 0.02
"""Largest weight."""


class Request(Params):
    """What is to be timed."""

    base: dict[str, Any]
    """The base model's configuration."""
    compute: ComputeConfig
    lora: LoraConfig
    prompt: int
    """Mean tokens of a prompt."""
    completion: int
    batch_size: int
    """Rows of a training step."""
    num_processes: int
    """Processes side by side."""


class Cost(NamedTuple):
    """Cost of a pass."""

    seconds: float
    operations: int


class TimedModel:
    """The base model with some of its layers, and the passes to time."""

    def __init__(self, base: PreTrainedConfig, request: Request, place: torch.device) -> None:
        torch.manual_seed(0)
        with no_init_weights():  # which would take three times as long as numbers of one range
            model = AutoModelForCausalLM.from_config(base, dtype=torch.float32)
        with torch.no_grad():
            for weight in model.parameters():
                weight.uniform_(-WEIGHT, WEIGHT)
        self.matrices = size.count_matrices(model)
        self._request = request
        policy.prepare_model(model, request.compute, place)
        row_policy.add_adapters(model, request.lora, 0)
        self._policy = Policy(model, request.compute, PAD)
        self._sampler = TransformersSampler(
            model=model, eos_ids=frozenset(), pad_id=PAD, max_batch=request.compute.max_batch
        )

    def find_largest(self, kind: str) -> int:
        """Rows of a full pass in a stage."""
        request = self._request
        if kind == "sampled":
            return request.compute.max_batch
        fitting = max(1, request.compute.max_tokens // (request.prompt + request.completion))
        return min(fitting, request.batch_size) if kind == "trained" else fitting

    def run(self, kind: str, rows: int) -> int:
        """Operations of a pass of so many rows."""
        return {"trained": self._train, "forward": self._forward, "sampled": self._sample}[kind](
            rows
        )

    def _batches(self, rows: int) -> list[Batch]:
        request = self._request
        texts = [TEXT] * request.prompt, [[TEXT] * request.completion]
        groups = make_groups([texts] * rows, request.compute.row_tokens)
        return [*micro_batches(groups, request.compute, PAD, self._policy.device)]

    def _train(self, rows: int) -> int:
        passes = Passes(positions=0, outputs=0)
        for batch in self._batches(rows):
            (-self._policy(batch, temperature=1.0, entropy=False).logprobs.mean()).backward()
            passes = _add(passes, batch)
        self._policy.zero_grad(set_to_none=True)
        return flops.count_training_flops(self.matrices, passes)

    def _forward(self, rows: int) -> int:
        passes = Passes(positions=0, outputs=0)
        with eval_no_grad(self._policy):
            for batch in self._batches(rows):
                self._policy(batch, temperature=1.0, entropy=False)
                passes = _add(passes, batch)
        return flops.count_forward_flops(self.matrices, passes)

    def _sample(self, rows: int) -> int:
        prompt = [TEXT] * self._request.prompt
        self._sampler.sample(
            [prompt], [0], num_samples=rows, temperature=1.0, max_new_tokens=NEW_TOKENS
        )
        positions = len(prompt) + rows * (NEW_TOKENS - 1)
        passes = Passes(positions=positions, outputs=rows * NEW_TOKENS)
        return flops.count_forward_flops(self.matrices, passes)


def _add(passes: Passes, batch: Batch) -> Passes:
    return Passes(
        positions=passes.positions + batch.num_tokens,
        outputs=passes.outputs + int(batch.mask.sum()),
    )


def read_clock() -> float:
    """Seconds of a clock that stands still while another process has the core.

    A GPU and several threads are waited for: there it is a clock on the wall.
    """
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time() if stages.THREADS == 1 else time.perf_counter()


def time_pass(model: TimedModel, kind: str, rows: int) -> Cost:
    """Cost of a pass."""
    begin = read_clock()
    operations = model.run(kind, rows)
    return Cost(read_clock() - begin, operations)


def choose_rows(model: TimedModel, kind: str) -> int:
    """Rows of a pass that takes about `SECONDS`, at most those of a stage."""
    largest = model.find_largest(kind)
    rows = min(SMALLEST[kind], largest)
    model.run(kind, rows)  # libraries choose their kernels
    seconds = time_pass(model, kind, rows).seconds
    return max(rows, min(largest, int(rows * SECONDS / seconds)))


def measure_cost(models: Mapping[int, TimedModel], kind: str, rows: int, total: int) -> Cost:
    """Cost of a pass with `total` layers; `models`: by the number of theirs."""
    for model in models.values():
        model.run(kind, rows)  # kernels are compiled for these shapes
    costs: dict[int, Cost] = {}
    for _ in range(REPEATS):
        for number, model in models.items():
            cost = time_pass(model, kind, rows)
            costs[number] = min(cost, costs.get(number, cost))
    return extend_costs(costs, total)


def extend_costs(costs: Mapping[int, Cost], total: int) -> Cost:
    """Cost with `total` layers; costs by the number of layers."""
    seconds, operations = (
        extend_line({number: cost[i] for number, cost in costs.items()}, total) for i in (0, 1)
    )
    # A disturbance can make the line fall; no model is quicker than one with fewer layers.
    slowest = max(cost.seconds for cost in costs.values())
    return Cost(max(seconds, slowest), round(operations))


def split_sampling(costs: Mapping[int, Cost], forward: float) -> dict[str, float]:
    """`sampled`, operations per second of rows, and `step`, seconds of a decode step without rows.

    `costs`: of two batches of one prompt, by their rows; `forward`: operations per second of the
    prompt's forward pass. On the line through both, a batch of no rows costs its prompt and its
    steps.
    """
    few, many = sorted(costs)
    seconds = max(LEAST, (costs[many].seconds - costs[few].seconds) / (many - few))
    operations = (costs[many].operations - costs[few].operations) / (many - few)
    prompt = (costs[few].operations - few * operations) / forward
    steps = costs[few].seconds - few * seconds - prompt
    return {"sampled": operations / seconds, "step": max(0.0, steps) / (NEW_TOKENS - 1)}


def measure(request: Request) -> dict[str, float]:
    """Operations per second by kind of pass, and `step`: seconds of a decode step without rows."""
    base = AutoConfig.for_model(**request.base)
    total = base.get_text_config(decoder=True).num_hidden_layers
    place = device.setup(request.compute)
    models = {
        number: TimedModel(keep_layers(base, number), request, place)
        for number in choose_layers(base, LAYER_GROWTH)
    }
    largest, rates = models[max(models)], dict[str, float]()
    for kind in ("trained", "forward"):
        cost = measure_cost(models, kind, choose_rows(largest, kind), total)
        rates[kind] = cost.operations / cost.seconds
    few = min(SMALLEST["sampled"], largest.find_largest("sampled"))
    many = max(ROW_GROWTH * few, choose_rows(largest, "sampled"))
    costs = {rows: measure_cost(models, "sampled", rows, total) for rows in (few, many)}
    return rates | split_sampling(costs, rates["forward"])


def main() -> None:
    """Answer requests until there are no more."""
    start = time.process_time()
    _write_line("ready")
    for line in sys.stdin:
        request = Request.model_validate_json(line)
        if torch.cuda.is_available():
            _write_line(json.dumps({**measure(request), "start": start}))
            continue
        # Forked, as the seeds of a stage: packages are imported once.
        children = [_fork(request, start) for _ in range(request.num_processes)]
        statuses = [os.waitpid(child, 0)[1] for child in children]
        if any(statuses):
            sys.exit(1)


def _fork(request: Request, start: float) -> int:
    """Process id of a child that writes its rates, or on standard error why it has none."""
    parent = os.getpid()
    if child := os.fork():
        return child
    status = 1
    try:
        process.die_with_parent(parent=parent)
        _write_line(json.dumps({**measure(request), "start": start}))
        status = 0
    except Exception:  # noqa: BLE001
        traceback.print_exc()
    finally:
        os._exit(status)


def _write_line(text: str) -> None:
    # At once and whole, beside those of other processes.
    os.write(sys.stdout.fileno(), f"{text}\n".encode())


if __name__ == "__main__":
    main()
