"""Memory of a stage: two steps of its loop on fake tensors, with the longest texts it may meet.

Every completion is as long as it may be, and an optimizer step has two micro-batches if it has that
many: from the second on, gradients, moments and activations are there together. Of more layers than
`layers.EXACT_LAYERS` two smaller models are measured: each phase is a line over the number of
layers (2 % too low was measured where activations are few). Tensors are counted (`fake_tensors`): a
GPU's driver and kernels, the gaps of its allocator, and three grids of rows x vocabulary of 8 bytes
with which the engine draws there, come besides.
"""

from dataclasses import replace

from stages.planning.fake_tensors import WHOLE, count_live_bytes
from stages.planning.layers import choose_layers, extend_line, keep_layers
from stages.planning.trial import Models, Trial
from stages.planning.trial_loops import LOOPS


def predict_peaks(trial: Trial) -> dict[str, int]:
    """Phase -> peak bytes of live tensors: `update`, `sampling`, `scoring`, `forward pass`."""
    total = trial.base.get_text_config(decoder=True).num_hidden_layers
    peaks = {number: measure_peaks(trial, number) for number in choose_layers(trial.base)}
    return {
        phase: round(extend_line({number: peaks[number][phase] for number in peaks}, total))
        for phase in peaks[max(peaks)]
    }


def measure_peaks(trial: Trial, num_layers: int) -> dict[str, int]:
    """`predict_peaks` of a model with `num_layers` layers, all of them measured."""
    with count_live_bytes(trial.config.compute.dtype) as (live, fake):
        trial = replace(trial, base=keep_layers(trial.base, num_layers))
        models = Models(trial=trial, live=live, fake=fake)
        steps = LOOPS[trial.entry_point](trial, models)
        if next(steps, None) is not None:
            live.reset_peaks()
            next(steps)
    return {phase: peak - models.gradients * (phase != WHOLE) for phase, peak in live.peaks.items()}
