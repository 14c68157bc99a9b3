"""Bytes that sampling takes besides the weights: the cache of keys and values, and logits."""

from dataclasses import dataclass

from stages.algorithms.memory.shape import Shape, widths

FLOAT = 4


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


def cache(shape: Shape, batch: Decoding, width: int) -> int:
    """Keys and values of every block, for as many positions as a completion may come to.

    2 x layers x rows x (prompt + new) x key x b bytes, taken when decoding begins
    (`engines/growing_cache`).
    """
    _, key = widths(shape)
    return 2 * shape.layers * batch.rows * (batch.prompt + batch.new) * key * width


def working(shape: Shape, batch: Decoding, width: int) -> int:
    """What comes and goes: the larger of reading the prompts and choosing a token.

    Prompts: rows / samples x prompt x (2 hidden x 4 + b (hidden + 3 intermediate)). A token: four
    grids of rows x vocab float32 (logits, scaled, probabilities, sums), and where a block has
    fewer keys than queries, its keys and values repeated for all heads. While rows are dropped,
    one block's cache is there twice.
    """
    query, key = widths(shape)
    positions = -(-batch.rows // batch.samples) * batch.prompt
    inner = 2 * shape.hidden * FLOAT + width * (shape.hidden + 3 * shape.intermediate)
    logits = 4 * batch.rows * shape.vocab * FLOAT
    length = batch.prompt + batch.new
    repeated = 2 * batch.rows * length * query * width if key < query else 0
    return max(positions * inner, logits, repeated, cache(shape, batch, width) // shape.layers)
