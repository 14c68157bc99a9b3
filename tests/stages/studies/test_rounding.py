import numpy as np
import pytest

from stages.records import lines
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rows import PROMPTS
from stages.studies import rounding


def test_the_spread_between_roundings_and_between_seeds_by_hand():
    # of seed 0: 0.4, 0.6 (variance 0.02), of seed 1: 0.5, 0.5 (0): sqrt(0.01)
    # pinned: 0.4, 0.5 (0.005), native: 0.6, 0.5 (0.005): sqrt(0.005)
    result = rounding.measure_spread(np.array([[0.4, 0.5], [0.6, 0.5]]))
    assert result["accuracy"] == [[0.4, 0.5], [0.6, 0.5]]
    assert result["between_roundings"] == pytest.approx(0.1)
    assert result["between_seeds"] == pytest.approx(0.005**0.5, abs=1e-6)


def test_of_one_seed_there_is_no_spread_between_seeds():
    result = rounding.measure_spread(np.array([[0.4], [0.6]]))
    assert result["between_seeds"] is None
    assert result["between_roundings"] == pytest.approx(0.02**0.5, abs=1e-6)


def test_an_accuracy_is_the_share_of_right_samples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prompts = [
        Prompt(id=name, task="solve", question="", prompt="", prompt_ids=[1], answer="7")
        for name in "ab"
    ]
    lines.write_lines(PROMPTS / "test.jsonl", prompts)
    rows = [
        Completion(id=name, index=i, completion=text, completion_ids=[1], logprob_sum=0.0,
                   finish_reason="stop", seed=0)
        for name in "ab" for i, text in enumerate(("#### 7", "#### 8" if name == "a" else "#### 7"))
    ]  # fmt: skip
    lines.write_lines(tmp_path / "samples/sft/0/test.jsonl", rows)
    assert rounding.tabulate_accuracy([tmp_path], [0], "sft", "test").tolist() == [[0.75]]


def test_the_report_has_a_row_a_policy():
    spread = rounding.measure_spread(np.array([[0.4, 0.5], [0.6, 0.5]]))
    metrics = {"roundings": ["pinned", "native"], "seeds": [0, 1],
               "policies": {"sft": {"test": spread, "test_greedy": spread}}}  # fmt: skip
    text = rounding.render_report(metrics)
    assert "| sft | 10.00 | 7.07 | 40.0, 50.0 | 60.0, 50.0 |" in text
