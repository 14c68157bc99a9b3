"""Rates and errors worked by hand."""

import json
from datetime import UTC, datetime

import pytest

from stages.planning import pace

WORK = {"body": 100, "output": 10, "trained_body": 100, "trained_output": 10, "parameters": 110}


@pytest.fixture
def records(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pace, "describe_device", lambda: ("cpu", "this one"))

    def record(stage, row, seconds, processor="this one", host="here"):
        folder = tmp_path / "data/runs" / stage / row / "0123456789abcdef-0"
        folder.mkdir(parents=True)
        ended = datetime.now(UTC).isoformat()
        run_record = {
            "device": "cpu",
            "cpu": {"model": processor},
            "seconds": seconds,
            "ended": ended,
        }
        run_record |= {"host": "here", "seeds": {"0": {"host": host}}}
        (folder / "run.json").write_text(json.dumps(run_record))
        journals = tmp_path / "data/journals" / stage / row
        journals.mkdir(parents=True)
        key = {"stage": f"{stage}@{row}", "input_key": "0123456789abcdef0123"}
        (journals / "key.json").write_text(json.dumps(key))
        for seed in range(2):
            training = tmp_path / "data/policies" / row / "training" / str(seed)
            training.mkdir(parents=True)
            work = {"policy": WORK | {"trained": {"positions": 20, "outputs": 5}}}
            (training / "metrics.json").write_text(json.dumps({"work": work}))

    return record


def test_a_rate_is_that_of_all_seeds(records):
    records("train", "sft", 10.0)
    # 6 operations for each number of a matrix and position: 6 (100 x 20 + 10 x 5), of two seeds.
    assert pace.read_rates(110) == {"train@sft": (2 * 6 * 2050 / 10.0, 10.0)}


def test_another_machine_and_another_size_tell_nothing(records):
    records("train", "sft", 10.0, processor="another")
    records("train", "kto", 10.0, host="there")
    assert pace.read_rates(110) == {}
    records("train", "dpo", 10.0)
    assert pace.read_rates(1000) == {}


def test_its_own_run_before_one_of_its_kind():
    known = {"train@sft": (5.0, 1.0), "train@dpo": (7.0, 1.0), "pool@sft": (3.0, 1.0)}
    assert pace.find_rate("train@dpo", known) == 7.0
    assert pace.find_rate("train@new", known) == 5.0
    assert pace.find_rate("sample@sft", known) == 3.0
    assert pace.find_rate("label@judge", known) is None
    assert pace.find_rate("train@sft", {"train@sft": (0.0, 1.0)}) is None


def test_the_error_is_over_what_ran_since(records):
    assert pace.compare_estimates() == {}
    pace.write_estimates({"train@sft": 12.0, "train@dpo": 15.0, "train@never": 99.0})
    estimates = json.loads(pace.REMEMBERED.read_text())
    pace.REMEMBERED.write_text(json.dumps(estimates | {"at": estimates["at"] - 60}))
    records("train", "sft", 10.0)
    records("train", "dpo", 20.0)
    compared = pace.compare_estimates()
    assert compared == {"train@sft": (12.0, 10.0), "train@dpo": (15.0, 20.0)}
    line = pace.describe_error(compared)
    # (2 + 5) / (10 + 20)
    assert "off by 23% (stages that ran since: 2)" in line
    assert "most for train@dpo: 15 s expected, 20 s taken" in line
    pace.write_estimates({"train@sft": 12.0})
    pace.REMEMBERED.write_text(json.dumps(estimates | {"at": estimates["at"] + 60}))
    assert pace.compare_estimates() == {}  # nothing ran since
