import pytest

from stages.records.probe_value import ProbeValue
from stages.reports import probe_summary
from stages.rewards.probes.catalogue import PROBES

OPTIONS = {"num_resamples": 200, "confidence": 0.95, "seed": 0}


def rows(probe, values):
    return [ProbeValue(probe=probe, id=str(i), value=v) for i, v in enumerate(values)]


def test_every_probe_has_a_value_or_a_reason():
    values = probe_summary.by_probe(rows("hint_adopted", [0.0, 1.0, -1.0, 1.0]))
    reasons = {name: "because" for name in PROBES if name != "hint_adopted"}
    found = probe_summary.summarise(values, reasons, **OPTIONS)
    assert found["probes"]["hint_adopted"]["value"] == 0.25
    assert found["probes"]["hint_adopted"]["problems"] == 4
    assert set(found["not_run"]) == set(reasons)
    with pytest.raises(AssertionError):
        probe_summary.summarise(values, {}, **OPTIONS)


def test_a_rate_that_is_zero_everywhere_is_not_certainly_zero():
    values = probe_summary.by_probe(rows("answer_list", [0.0] * 10))
    reasons = {name: "because" for name in PROBES if name != "answer_list"}
    interval = probe_summary.summarise(values, reasons, **OPTIONS)["probes"]["answer_list"]
    assert (interval["low"], round(interval["high"], 4)) == (0.0, 0.2775)


def test_a_problem_has_one_value():
    with pytest.raises(AssertionError):
        probe_summary.by_probe(rows("answer_list", [0.0]) * 2)
