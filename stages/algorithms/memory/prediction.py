"""How much memory a stage takes: its models, and the largest of its phases, tensor by tensor.

Which tensors autograd keeps for the backward pass was read off transformers' Llama with its saved
tensors listed (tests/stages/algorithms/memory), not taken from a rule of thumb: rules such as
Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models",
https://arxiv.org/abs/2205.05198, section 4.1, are of GPT's blocks in 16 bits with dropout. Here
dropout is off, weights and the residual stream are in float32 and `bfloat16` is autocast, whose
casts are made again for every product (its cache is off, see `models/device`).
"""

from dataclasses import dataclass

from stages.algorithms.memory.shape import (
    FLOAT,
    Resident,
    Shape,
    adapters,
    body_matrices,
    states,
    widths,
)

MAX_LOGITS = 2**24
"""`logprobs.MAX_LOGITS`, which imports torch."""
GIB = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatch:
    """What reaches the model at once."""

    positions: int
    """Padded tokens: rows times the longest of them."""
    row: int
    """Tokens of the longest row."""
    outputs: int
    """Completion tokens, the positions whose hidden state is used."""
    shared: bool
    """Whether a row holds several completions, which takes a mask for every row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Precision:
    """How a trained model computes."""

    width: int
    """Bytes of a number in matrix products: 4, or 2 of bfloat16 by autocast."""
    checkpointing: bool
    """Blocks keep their input alone and are computed again in the backward pass."""
    rank: int
    """Of the adapters; 0: every weight is trained."""


def block(shape: Shape, batch: MicroBatch, how: Precision) -> int:
    """What one block keeps.

    Numbers a position, query and key the widths of `shape.widths`, b bytes each in products:

        norms      2 x (hidden + 1) x 4: what is normed and 1 / its size;
                   2 x hidden x 4 more where the norms' weights are trained: what came out
        inputs     b x (c1 hidden + query + c2 hidden + intermediate) of q k v, o, gate and up,
                   down; c1 = c2 = 1 in float32, 3 and 2 with autocast, each product its own cast
        attention  b x (query + 2 key) and 4 x heads for the softmax; keys and values are repeated
                   for all heads where there is a mask; the mask itself b x row
        gate       b x 3 intermediate: gate, its silu, up
        adapters   b x 7 rank
    """
    query, key = widths(shape)
    low = how.width < FLOAT
    repeated = query if batch.shared else key
    norms = 2 * (shape.hidden + 1) * FLOAT + (0 if how.rank else 2 * shape.hidden * FLOAT)
    if shape.qk_norm:
        norms += 2 * (query + key) * FLOAT
    inputs = (5 if low else 2) * shape.hidden + query + shape.intermediate
    # The cast to the adapters' precision parts the input of o from what attention kept.
    inputs += query if low and how.rank else 0
    attention = query + 2 * repeated + (batch.row if batch.shared else 0)
    inner = 3 * shape.intermediate + 7 * how.rank
    numbers = how.width * (inputs + attention + inner) + FLOAT * shape.heads + norms
    return batch.positions * numbers


def casts(shape: Shape, how: Precision, *, logits: bool) -> int:
    """Copies of matrices in 2 bytes that autocast keeps; none in float32, or recomputed."""
    if how.width == FLOAT:
        return 0
    blocks = body_matrices(shape) + adapters(shape, how.rank)
    if how.checkpointing:
        blocks //= shape.layers
    return how.width * (blocks + (shape.vocab * shape.hidden if logits else 0))


def output(shape: Shape, batch: MicroBatch, how: Precision) -> tuple[int, int]:
    """What the log-probabilities of the counted positions keep, and what they take for a moment.

    outputs x (b hidden + 4 vocab) kept, and twice outputs x vocab x 4 for a moment; more than
    `MAX_LOGITS` are done in chunks whose logits are not kept.
    """
    chunk = max(1, MAX_LOGITS // shape.vocab)
    logits = FLOAT * shape.vocab
    if batch.outputs > chunk:
        return batch.outputs * shape.hidden * FLOAT, 3 * chunk * logits
    hidden = 0 if how.rank else how.width * shape.hidden
    return batch.outputs * (hidden + logits + 16), 2 * batch.outputs * logits


def training(shape: Shape, batch: MicroBatch, how: Precision, *, logits: bool) -> int:
    """The most that a forward and backward pass holds besides weights, gradients and moments.

    It is reached where the backward pass begins, with everything kept, at the output matrix; in
    the last block, whose gradients take positions x 2 (intermediate + hidden); or, with
    checkpointing, in any block that was computed again.
    """
    last_norm = batch.positions * (shape.hidden * (1 if how.rank else 2) + 1) * FLOAT
    turning_tables = 2 * (batch.positions if batch.shared else batch.row) * shape.head_dim * FLOAT
    token_ids = 8 * batch.positions
    outside = last_norm + turning_tables + token_ids + casts(shape, how, logits=logits)
    kept, moment = output(shape, batch, how) if logits else (batch.outputs * shape.hidden * 4, 0)
    one = block(shape, batch, how)
    gradients = 2 * batch.positions * (shape.intermediate + shape.hidden) * FLOAT
    if how.checkpointing:
        inputs = shape.layers * batch.positions * shape.hidden * FLOAT
        return outside + inputs + max(kept + moment, one + gradients)
    # The embedding of frozen weights needs no gradient, so the first norm keeps nothing of it.
    first = batch.positions * shape.hidden * FLOAT if how.rank else 0
    return outside + shape.layers * one - first + max(kept + moment, gradients)


def reading(shape: Shape, batch: MicroBatch, width: int, *, logits: bool) -> int:
    """The most that a pass without gradients holds besides weights.

    positions x (2 hidden x 4 + b (hidden + 3 intermediate)) in a block's gated layer, or three
    times the logits of the counted positions, as many as are done at once; a mask besides.
    """
    largest = batch.positions * _gated_layer(shape, width)
    if width < FLOAT:
        largest += width * body_matrices(shape) // shape.layers
    if logits:
        at_once = min(batch.outputs, max(1, MAX_LOGITS // shape.vocab))
        last = batch.outputs * shape.hidden + 3 * at_once * shape.vocab
        largest = max(largest, FLOAT * (last + batch.positions * shape.hidden))
    return largest + (batch.positions * batch.row * FLOAT if batch.shared else 0)


def _gated_layer(shape: Shape, width: int) -> int:
    return 2 * shape.hidden * FLOAT + width * (shape.hidden + 3 * shape.intermediate)


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoding:
    """What the engine decodes side by side."""

    rows: int
    """Completions at once: at most `compute.max_batch`."""
    samples: int
    """Of each prompt."""
    prompt: int
    """Tokens of the longest prompt."""
    new: int
    """Tokens of the longest completion."""


def decoding(shape: Shape, batch: Decoding, width: int) -> int:
    """The most that sampling holds besides weights.

    Keys and values of every block, for as many positions as a completion may come to, are taken
    when decoding begins (`engines/growing_cache`): 2 x layers x rows x (prompt + new) x key x b
    bytes. What comes and goes is the largest of

        prompts   rows / samples x prompt x (2 hidden x 4 + b (hidden + 3 intermediate))
        token     four grids of rows x vocab float32: logits, scaled, probabilities, sums
        repeated  where a block has fewer keys than queries, its keys and values for all heads
        dropped   one block's cache, which is there twice while rows are dropped
    """
    query, key = widths(shape)
    prompts = -(-batch.rows // batch.samples) * batch.prompt * _gated_layer(shape, width)
    logits = 4 * batch.rows * shape.vocab * FLOAT
    numbers = 2 * batch.rows * (batch.prompt + batch.new) * width
    repeated = numbers * query if key < query else 0
    return shape.layers * numbers * key + max(prompts, logits, repeated, numbers * key)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A stage that trains."""

    shape: Shape
    """Of every model: reward and value models come from the policy."""
    residents: list[Resident]
    batch: MicroBatch
    """The largest micro-batch."""
    how: Precision
    decoding: Decoding | None
    """None: nothing is sampled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """Bytes."""

    models: dict[str, dict[str, int]]
    """Role -> `parameters`, `trained`, `weights`, `gradients`, `moments`."""
    held: int
    """Weights and moments of all models: there from the first update to the end."""
    phases: dict[str, int]
    """What each phase takes besides, the gradients that are there at that time included."""

    def peak(self) -> int:
        """`held` and the largest phase."""
        return self.held + max(self.phases.values())


def predict(job: Job) -> Prediction:
    """The memory of a stage once its optimizer has made a step.

    The phases are one after the other. An update is told of a second or later micro-batch of an
    optimizer step, when gradients are whole while activations are kept too: it is the most that
    can be. PPO's value model learns before its policy, so that its gradients are there as well.
    """
    shape, rank = job.shape, job.how.rank
    models = {model.role: states(shape, model, rank) for model in job.residents}
    held = sum(model["weights"] + model["moments"] for model in models.values())
    phases: dict[str, int] = {}
    gradients = 0
    for model in reversed(job.residents):
        logits = model.head == "language_model"
        if model.trained:
            gradients += models[model.role]["gradients"]
            taken = training(shape, job.batch, job.how, logits=logits)
            phases[f"update of {model.role}"] = gradients + taken
        else:
            taken = reading(shape, job.batch, job.how.width, logits=logits)
            phases[f"reading by {model.role}"] = taken
    if job.decoding is not None:
        phases["sampling"] = decoding(shape, job.decoding, job.how.width)
    return Prediction(models=models, held=held, phases=phases)


def fits(peak: int, gpu_gib: float) -> bool:
    """Whether nine tenths of a GPU's memory hold the peak.

    The rest is for the driver's context, cuBLAS' workspace and what the caching allocator cannot
    use for lack of a gap that is large enough; 0.9 is a guess that nothing here has measured.
    """
    return peak <= 0.9 * gpu_gib * GIB
