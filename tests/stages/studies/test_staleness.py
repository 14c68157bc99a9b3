import numpy as np
import pytest

from stages.studies import staleness
from stages.studies.staleness import Staleness


def tables(*shares: float) -> dict[int, dict[str, np.ndarray]]:
    """Of each age two seeds and four problems; problems differ, ages by their share."""
    problems = np.array([[0.0, 0.2, 0.4, 0.6], [0.1, 0.2, 0.4, 0.5]])
    return {
        age: {"mean": problems + share, "greedy": problems}
        for age, share in zip((0, 1, 4), shares, strict=True)
    }


def test_each_age_is_compared_with_the_newest_weights() -> None:
    metrics = staleness.compare_ages(tables(0.1, 0.2, 0.05), confidence=0.95)
    assert metrics["ages"]["0"]["mean"]["value"] == pytest.approx(0.4)
    assert metrics["ages"]["4"]["mean"]["value"] == pytest.approx(0.35)
    more, less = (metrics["differences"]["mean"][age] for age in ("1", "4"))
    assert (more["first"], more["second"], more["value"]) == ("1", "0", pytest.approx(0.1))
    assert (less["first"], less["second"], less["value"]) == ("0", "4", pytest.approx(0.05))
    assert metrics["differences"]["greedy"]["1"]["value"] == 0


def test_no_accuracy_is_above_100_percent() -> None:
    almost = np.array([[1.0, 1.0, 1.0, 0.9]] * 2)
    metrics = staleness.compare_ages(
        {age: {"mean": almost, "greedy": np.ones((2, 4))} for age in (0, 1)}, confidence=0.95
    )
    # A standard error of 0.025 and t of 3 degrees, 3.182, would end at 1.055.
    mean = metrics["ages"]["1"]["mean"]
    assert (mean["value"], mean["high"]) == (0.975, 1.0)
    assert mean["low"] == pytest.approx(0.8954, abs=1e-4)
    # Wilson's interval of 4 of 4 at 95 %: 1 / (1 + 1.96^2 / 4) = 0.5101.
    greedy = metrics["ages"]["1"]["greedy"]
    assert greedy == pytest.approx({"value": 1.0, "low": 0.5101, "high": 1.0}, abs=1e-4)


def test_the_report_gives_a_loss_its_sign() -> None:
    metrics = staleness.compare_ages(tables(0.1, 0.2, 0.05), confidence=0.95)
    metrics |= {"policy": "grpo", "num_seeds": 2, "tokens": {"0": 1000, "1": 1000, "4": 2000}}
    lines = staleness.render_report(metrics).splitlines()
    (line,) = [line for line in lines if line.startswith("| 4 |")]
    assert "-5.0 [-5.0, -5.0] *" in line
    assert "2,000" in line


PLAN = {
    "policies": {
        "dpo": {"train": "dpo", "preset": "dpo"},
        "grpo": {"train": "grpo", "preset": "grpo_deepseekmath"},
    }
}


@pytest.mark.parametrize(
    ("policy", "ages", "message"),
    [
        ("dpo", [1], "staleness.policy: expected a policy that grpo or ppo trains"),
        ("gone", [1], "staleness.policy"),
        ("grpo", [0, 1], "staleness.ages: expected numbers from 1 on"),
        ("grpo", [2, 2], "staleness.ages"),
    ],
)
def test_what_has_no_staleness_is_refused(policy: str, ages: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        staleness.check_settings(PLAN, Staleness(policy=policy, ages=ages, confidence=0.95))
