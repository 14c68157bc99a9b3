"""Memory of a stage: two steps of its loop on fake tensors, with the longest texts it may meet.

Every completion is as long as it may be, and an optimizer step has two micro-batches if it has that
many: from the second on, gradients, moments and activations are there together. Of more layers than
`EXACT_LAYERS` two smaller models are measured: each phase is a line over the number of layers (2 %
too low was measured where activations are few). Tensors are counted (`fake_tensors`): a GPU's
driver and kernels, the gaps of its allocator, and three grids of rows x vocabulary of 8 bytes with
which the engine draws there, come besides.
"""

import copy
from dataclasses import replace

from stages.planning.fake_tensors import WHOLE, count_live_bytes
from stages.planning.trial import Models, Trial
from stages.planning.trial_loops import LOOPS

EXACT_LAYERS = 4


def predict_peaks(trial: Trial) -> dict[str, int]:
    """Phase -> bytes of live tensors at its peak: `update`, `sampling`, `scoring`, `reading`."""
    text = trial.base.get_text_config(decoder=True)
    total, kinds = int(text.num_hidden_layers), getattr(text, "layer_types", None)
    # Where layers differ, a stretch that repeats.
    period = next(p for p in range(1, total + 1) if not kinds or kinds[p:] == kinds[:-p])
    num_small = period * -(-2 // period)
    if total <= max(EXACT_LAYERS, 2 * num_small):
        return measure_peaks(trial, total)
    small, large = measure_peaks(trial, num_small), measure_peaks(trial, 2 * num_small)
    return {
        phase: round(small[phase] + (large[phase] - small[phase]) / num_small * (total - num_small))
        for phase in small
    }


def measure_peaks(trial: Trial, num_layers: int) -> dict[str, int]:
    """`predict_peaks` of a model with `num_layers` layers, all of them measured."""
    base = copy.deepcopy(trial.base)
    text = base.get_text_config(decoder=True)
    text.num_hidden_layers = num_layers
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:num_layers]
    with count_live_bytes(trial.config.compute.dtype) as (live, fake):
        trial = replace(trial, base=base)
        models = Models(trial=trial, live=live, fake=fake)
        steps = LOOPS[trial.entry_point](trial, models)
        if next(steps, None) is not None:
            live.reset_peaks()
            next(steps)
    return {phase: peak - models.gradients * (phase != WHOLE) for phase, peak in live.peaks.items()}
