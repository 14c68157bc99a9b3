"""Bytes that passes of a transformer of Llama's kind keep, tensor by tensor, and their sizes.

Which tensors autograd keeps for the backward pass was read off transformers' Llama with its saved
tensors listed (tests/stages/algorithms/memory), not taken from a rule of thumb: rules such as
Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models",
https://arxiv.org/abs/2205.05198, section 4.1, are of GPT's blocks in 16 bits with dropout. Here
dropout is off, weights and the residual stream are in float32 and `bfloat16` is autocast, whose
casts are made again for every product (its cache is off, see `models/device`).
"""

from dataclasses import dataclass

from stages.algorithms.memory.shape import Shape, body_matrices, linears, widths

FLOAT = 4
"""Bytes of float32, in which weights, gradients, moments, norms and log-probs are."""
MAX_LOGITS = 2**24
"""`logprobs.MAX_LOGITS`, which imports torch."""


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
    adapters = shape.layers * sum(how.rank * (rows + columns) for rows, columns in linears(shape))
    blocks = body_matrices(shape) + adapters
    if how.checkpointing:
        blocks //= shape.layers
    return how.width * (blocks + (shape.vocab * shape.hidden if logits else 0))


def outside_blocks(shape: Shape, batch: MicroBatch, how: Precision) -> int:
    """The last norm, the turning tables of positions, token ids."""
    norm = batch.positions * (shape.hidden * (1 if how.rank else 2) + 1) * FLOAT
    tables = 2 * (batch.positions if batch.shared else batch.row) * shape.head_dim * FLOAT
    return norm + tables + 8 * batch.positions


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
    outside = outside_blocks(shape, batch, how) + casts(shape, how, logits=logits)
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


def decoding_cache(shape: Shape, batch: Decoding, width: int) -> int:
    """Keys and values of every block, for as many positions as a completion may come to.

    2 x layers x rows x (prompt + new) x key x b bytes, taken when decoding begins
    (`engines/growing_cache`).
    """
    _, key = widths(shape)
    return 2 * shape.layers * batch.rows * (batch.prompt + batch.new) * key * width


def decoding_tensors(shape: Shape, batch: Decoding, width: int) -> int:
    """What comes and goes: the larger of reading the prompts and choosing a token.

    Prompts: rows / samples x prompt x (2 hidden x 4 + b (hidden + 3 intermediate)). A token: four
    grids of rows x vocab float32 (logits, scaled, probabilities, sums), and where a block has
    fewer keys than queries, its keys and values repeated for all heads. While rows are dropped,
    one block's cache is there twice.
    """
    query, key = widths(shape)
    positions = -(-batch.rows // batch.samples) * batch.prompt
    logits = 4 * batch.rows * shape.vocab * FLOAT
    length = batch.prompt + batch.new
    repeated = 2 * batch.rows * length * query * width if key < query else 0
    largest = positions * _gated_layer(shape, width), logits, repeated
    return max(*largest, decoding_cache(shape, batch, width) // shape.layers)


def largest_micro_batch(
    prompt: int, completion: int, *, per_prompt: int, num_prompts: int, max_tokens: int,
    row_tokens: int, pack_tokens: int,
) -> MicroBatch:  # fmt: skip
    """The most that `models/batch.micro_batches` puts together, everything as long as it may be.

    Args:
        prompt, completion: tokens of the longest.
        per_prompt: completions of a prompt that are in a batch together.
        num_prompts: in an optimizer step: not more are there to be put together.
        max_tokens, row_tokens, pack_tokens: see `ComputeConfig`.
    """
    together = max(1, min(per_prompt, (row_tokens - prompt) // completion))
    group = prompt + together * completion
    packed = max(1, min(pack_tokens, max_tokens) // group)
    rows = max(1, max_tokens // (packed * group))
    rows = min(rows, -(-num_prompts * per_prompt // (together * packed)))
    shared, outputs = together * packed > 1, rows * packed * together * completion
    row = packed * group
    return MicroBatch(positions=rows * row, row=row, outputs=outputs, shared=shared)


def fullest_decoding(
    prompt: int, completion: int, *, samples: int, num_prompts: int, max_batch: int
) -> Decoding:
    """The most that the transformers engine decodes at once: whole groups, one at least."""
    at_once = min(num_prompts, max(1, max_batch // samples))
    return Decoding(rows=at_once * samples, samples=samples, prompt=prompt, new=completion)
