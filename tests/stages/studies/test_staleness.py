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
