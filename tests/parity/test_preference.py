"""Losses on preference pairs with a reference against TRL's `DPOTrainer`."""

import pytest
from parity.pairs import our_step, trl_step

from stages.loops.preference import PreferencePreset

BETA = 0.3
CASES = [
    ("DPO", {"loss_type": ["sigmoid"]}, {"kind": "sigmoid", "beta": BETA, "label_smoothing": 0.0}),
    (
        "robust DPO",
        {"loss_type": ["robust"], "label_smoothing": 0.2},
        {"kind": "robust", "beta": BETA, "flip_rate": 0.2},
    ),
    ("hinge", {"loss_type": ["hinge"]}, {"kind": "hinge", "beta": BETA}),
    ("IPO", {"loss_type": ["ipo"]}, {"kind": "ipo_mean", "beta": BETA}),
]
NOTES = {"IPO": "`ipo_mean`: TRL averages log-ratios per token, the paper (`ipo_sum`) sums"}


@pytest.mark.parametrize(("method", "settings", "loss"), CASES, ids=[case[0] for case in CASES])
def test_pairs_with_a_reference(method, settings, loss, tmp_path, monkeypatch, agree):
    from trl import DPOConfig, DPOTrainer

    step = trl_step(DPOTrainer, DPOConfig, tmp_path, with_reference=True, beta=BETA, **settings)
    compared = f"`loops/preference.train`, one step, `loss_type` {settings['loss_type'][0]}"
    result = our_step(PreferencePreset.model_validate(loss), monkeypatch)
    agree(method, compared, result, step.computed, note=NOTES.get(method, ""))
