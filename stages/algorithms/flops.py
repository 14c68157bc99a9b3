"""Floating-point operations of a model's passes, from its matrix sizes and token positions.

A product of a row of n numbers with a matrix of n x m numbers is n m multiplications and n m
additions: 2 operations for each number of the matrix. So a position that passes forward through
matrices of P numbers costs 2 P (Kaplan et al. 2020, "Scaling Laws for Neural Language Models",
https://arxiv.org/abs/2001.08361, section 2.1). The backward pass costs another 2 P for the gradient
of the inputs, for the layer below, and 2 P for that of the weights: 6 P in all if every weight is
trained. Departures from the rule of thumb 2 P and 6 P:

- the output matrix is counted by itself, since only positions that predict a counted token
  reach it (`models/policy`), and P is that of the other matrices;
- a frozen weight has no gradient: 4 P (LoRA's frozen matrices);
- looking up an input embedding multiplies nothing and is left out, tied or not.

Left out, because they are small here: attention's own products, 4 L d times the positions seen,
against 2 P of about 24 L d^2, so a share of context / (6 d) (for the embedded model, width 96
and about 40 positions, 7 per cent; for a width of 4096 and 4,096 positions 17 per cent: mind this
when comparing long texts); norms, activations, the softmax over the vocabulary; the heads of
reward and value models (d numbers); the optimizer (a dozen operations for each weight and step).
Overhead is not counted: padding, and recomputation by gradient checkpointing or the chunked output
matrix.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrices:
    """Numbers in the matrices of a model."""

    body: int
    """Numbers in matrices that every position passes, adapters included; no input embedding."""
    output: int
    """Numbers in the output matrix, hidden x vocabulary; 0 for a model without one."""
    trained_body: int
    """Part of `body` that is trained."""
    trained_output: int
    """Part of `output` that is trained."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Passes:
    """Positions that passed through a model."""

    positions: int
    """Tokens of the input, a prompt that several completions share counted once."""
    outputs: int
    """Positions whose logits were computed."""


def count_forward_flops(matrices: Matrices, passes: Passes) -> int:
    """Floating-point operations of forward passes: 2 (body positions + output outputs)."""
    return 2 * (matrices.body * passes.positions + matrices.output * passes.outputs)


def count_training_flops(matrices: Matrices, passes: Passes) -> int:
    """Floating-point operations of forward and backward passes.

    2 (2 body + trained_body) positions + 2 (2 output + trained_output) outputs; factor 6 if all
    weights are trained.
    """
    body = 2 * matrices.body + matrices.trained_body
    output = 2 * matrices.output + matrices.trained_output
    return 2 * (body * passes.positions + output * passes.outputs)
