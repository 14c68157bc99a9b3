"""Speed of this machine, from timed passes in each arithmetic.

    python -m stages.planning.speed < request.json

A rate is operations per second (`jobs`, `algorithms/flops`); starts of processes are left out.
Passes of the base model with random weights are timed, by the stages' own code: micro-batches and
log-probabilities of a `Policy`, and `TransformersSampler`; the optimizer, a few per cent of a step,
is not. Only the first layers of a deep model are timed: operations per second differ little with
depth (of SmolLM2's shape by up to 1.3 times, 6 layers of 30). Seconds of a decode step are linear
in the rows of its batch: the weights are read once, whatever the number of rows, and each row adds
its own operations. One process is timed, and seeds side by side, or processes of a seed, count as
so many times its rate: what they lose by sharing bandwidth is left out. Rounding is fixed when a
process starts, so each arithmetic has its own process.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig
from transformers.initialization import no_init_weights

import stages
from stages.algorithms.flops import Passes
from stages.config import Params
from stages.engines.transformers import TransformersSampler
from stages.models import device, policy, row_policy, size
from stages.models.batch import eval_no_grad, make_groups, micro_batches
from stages.models.device import ComputeConfig
from stages.models.policy import Policy
from stages.models.row_policy import LoraConfig
from stages.planning.cost import keep_layers
from stages.planning.jobs import Work, count_operations

FLOAT32, BFLOAT16, PINNED, NATIVE = "float32", "bfloat16", "pinned", "native"


class Arithmetic(NamedTuple):
    """Precision and instructions: `dtype` and `rounding` of section `compute`."""

    dtype: str
    rounding: str

    def describe_cost(self) -> str:
        """Costs against pinned float32, in words."""
        costs = ["less precise"] * (self.dtype == BFLOAT16)
        costs += ["results reproducible on this kind of processor only"] * (self.rounding != PINNED)
        return ", ".join(costs) or "nothing: the same bits on every processor with AVX2"


SIMPLEST = Arithmetic(FLOAT32, PINNED)
"""The arithmetic that the others are compared with."""
USUAL = (SIMPLEST, Arithmetic(FLOAT32, NATIVE), Arithmetic(BFLOAT16, NATIVE))
"""Arithmetics that are measured on a CPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """Operations per second of all seeds that run side by side, by kind of pass."""

    trained: float
    forward: float
    sampled: float
    """Operations per second of the rows of a decode step, beside `step`."""
    step: float
    """Seconds of a decode step that do not depend on its rows, divided by the number of seeds that
    run side by side."""

    def predict_seconds(self, work: Work) -> float:
        """Seconds of these passes."""
        passes = work.trained / self.trained + work.forward / self.forward
        return passes + work.sampled / self.sampled + work.steps * self.step


# --- timed passes

TIMEOUT = 300
"""Seconds after which the measurement of an arithmetic is abandoned."""
SECONDS = 0.4
"""Duration from which a pass is large enough, though a stage's may have more rows."""
TIMED_LAYERS = 6
"""Most layers of the timed model."""
ROW_GROWTH = 4
"""Factor by which the rows of a pass grow until it is large enough."""
NEW_TOKENS = 4
"""Tokens that each row samples: the first from the prompt's pass, the others in a step each."""
LEAST = 1e-6
"""Smallest cost of a row, in seconds, assumed if it cannot be measured."""
TEXT, PAD = 1, 0
WEIGHT = 0.02
"""Largest weight."""


class Request(Params):
    """Passes to time: model, arithmetic and sizes."""

    base: dict[str, Any]
    """The base model's configuration."""
    compute: ComputeConfig
    lora: LoraConfig
    prompt: int
    """Mean tokens of a prompt."""
    completion: int
    batch_size: int
    """Rows of a training step."""

    def find_largest(self, kind: str) -> int:
        """Rows of a full pass in a stage."""
        if kind == "sampled":
            return self.compute.max_batch
        fitting = max(1, self.compute.max_tokens // (self.prompt + self.completion))
        return min(fitting, self.batch_size) if kind == "trained" else fitting


class Cost(NamedTuple):
    """Cost of a pass."""

    seconds: float
    operations: int


class TimedModel:
    """The base model with its first layers, and the passes to time.

    `share`: numbers in its matrices, which a decode step reads, over those of the whole model.
    """

    def __init__(self, request: Request) -> None:
        place = device.setup(request.compute)
        base: PreTrainedConfig = AutoConfig.for_model(**request.base)
        layers = base.get_text_config(decoder=True).num_hidden_layers
        with torch.device("meta"):
            whole = size.count_matrices(AutoModelForCausalLM.from_config(base))
        torch.manual_seed(0)
        with no_init_weights():  # which would take three times as long as numbers of one range
            model = AutoModelForCausalLM.from_config(
                keep_layers(base, min(TIMED_LAYERS, layers)), dtype=torch.float32
            )
        with torch.no_grad():
            for weight in model.parameters():
                weight.uniform_(-WEIGHT, WEIGHT)
        self._matrices, self._request = size.count_matrices(model), request
        self.share = (self._matrices.body + self._matrices.output) / (whole.body + whole.output)
        policy.prepare_model(model, request.compute, place)
        row_policy.add_adapters(model, request.lora, 0)
        self._policy = Policy(model, request.compute, PAD)
        self._sampler = TransformersSampler(
            model=model, eos_ids=frozenset(), pad_id=PAD, max_batch=request.compute.max_batch
        )

    def run(self, kind: str, rows: int) -> Cost:
        """Cost of a pass of so many rows: `trained`, `forward` or `sampled`."""
        request, positions, outputs = self._request, 0, 0
        prompt = [TEXT] * request.prompt
        begin = read_clock()
        if kind == "sampled":
            self._sampler.sample(
                [prompt], [0], num_samples=rows, temperature=1.0, max_new_tokens=NEW_TOKENS
            )
            positions, outputs = len(prompt) + rows * (NEW_TOKENS - 1), rows * NEW_TOKENS
        else:
            texts = [(prompt, [[TEXT] * request.completion])] * rows
            groups = make_groups(texts, request.compute.row_tokens)
            with nullcontext() if kind == "trained" else eval_no_grad(self._policy):
                for batch in micro_batches(groups, request.compute, PAD, self._policy.device):
                    read = self._policy(batch, temperature=1.0, entropy=False)
                    if kind == "trained":
                        (-read.logprobs.mean()).backward()
                    positions += batch.num_tokens
                    outputs += int(batch.mask.sum())
            self._policy.zero_grad(set_to_none=True)
        passes = Passes(positions=positions, outputs=outputs)
        return Cost(read_clock() - begin, count_operations(kind, self._matrices, passes))


def read_clock() -> float:
    """Seconds of processor time, which stands still while another process has the core.

    With a GPU or several threads: wall-clock time, after the GPU has finished.
    """
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time() if stages.THREADS == 1 else time.perf_counter()


def measure(request: Request) -> dict[str, float]:
    """Operations per second by kind of pass, and `step`: seconds of a decode step without rows."""
    model = TimedModel(request)
    rates = dict[str, float]()
    for kind in ("trained", "forward", "sampled"):
        rows, largest, costs = 1, request.find_largest(kind), dict[int, Cost]()
        while True:
            # The first run of these shapes chooses and compiles kernels: the faster run counts.
            costs[rows] = min(model.run(kind, rows) for _ in range(2))
            is_enough = len(costs) > (kind == "sampled")
            if rows == largest or (is_enough and costs[rows].seconds >= SECONDS):
                break
            rows = min(largest, ROW_GROWTH * rows)
        rates[kind] = costs[rows].operations / costs[rows].seconds
        if kind == "sampled" and len(costs) > 1:
            rates |= split_sampling(costs, rates["forward"])
            rates["step"] /= model.share
    return {"step": 0.0} | rates


def split_sampling(costs: Mapping[int, Cost], forward: float) -> dict[str, float]:
    """`sampled`, operations per second of rows, and `step`, seconds of a decode step without rows.

    `costs`: of batches of one prompt, by their rows; `forward`: operations per second of the
    prompt's forward pass. On the line through the two largest, a batch of no rows costs its prompt
    and its steps.
    """
    few, many = sorted(costs)[-2:]
    seconds = max(LEAST, (costs[many].seconds - costs[few].seconds) / (many - few))
    operations = (costs[many].operations - costs[few].operations) / (many - few)
    prompt = (costs[few].operations - few * operations) / forward
    steps = costs[few].seconds - few * seconds - prompt
    return {"sampled": operations / seconds, "step": max(0.0, steps) / (NEW_TOKENS - 1)}


def measure_rates(
    request: Mapping[str, Any], arithmetics: Sequence[Arithmetic], num_seeds: int
) -> dict[Arithmetic, Rates]:
    """Rates in each arithmetic of `num_seeds` seeds side by side.

    `request`: a `Request`, whose arithmetic is replaced. A ValueError, with the last line of
    errors, if the base model cannot be run.
    """
    rates: dict[Arithmetic, Rates] = {}
    for each in arithmetics:
        content = {**request, "compute": {**request["compute"], **each._asdict()}}
        try:
            result = subprocess.run(
                [sys.executable, "-m", "stages.planning.speed"], input=json.dumps(content),
                env=os.environ | {"POSTTRAIN_ROUNDING": each.rounding}, capture_output=True,
                text=True, check=True, timeout=TIMEOUT,
            )  # fmt: skip
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            lines = str(error.stderr or "").strip().splitlines()
            reason = lines[-1].strip().rstrip(".") if lines else "no answer, for want of memory"
            raise ValueError(
                f"expected the base model to run on this machine, found: {reason:.250}. Times are "
                f"not forecast."
            ) from error
        rates[each] = combine_seeds(json.loads(result.stdout.splitlines()[-1]), num_seeds)
    return rates


def combine_seeds(rates: Mapping[str, float], num_seeds: int) -> Rates:
    """Rates of so many seeds side by side, from those of one process."""
    kinds = {kind: num_seeds * rates[kind] for kind in ("trained", "forward", "sampled")}
    return Rates(**kinds, step=rates["step"] / num_seeds)


def main() -> None:
    """Answer a request on standard input with the rates of this process."""
    request = Request.model_validate_json(sys.stdin.read())
    sys.stdout.write(json.dumps(measure(request)) + "\n")


if __name__ == "__main__":
    main()
