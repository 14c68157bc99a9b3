"""The release gate: probes of a policy against the baseline's, paired by problem and seed."""

import pytest

from studies import gate
from studies.probe_catalogue import PROBES, ProbeValue

OPTIONS = {"confidence": 0.95}


def rows(probe, values):
    return [ProbeValue(probe=probe, id=str(i), value=v) for i, v in enumerate(values)]


def summarise(probe, values, reasons=None):
    reasons = dict.fromkeys(PROBES, "because") if reasons is None else reasons
    reasons.pop(probe, None)
    return gate.summarise_probes(gate.group_by_probe([rows(probe, values)]), reasons, **OPTIONS)


def test_every_probe_has_a_value_or_a_reason():
    result = summarise("hint_adopted", [0.0, 1.0, -1.0, 1.0])
    probe = result["probes"]["hint_adopted"]
    assert (probe["value"], probe["problems"]) == (0.25, 4)
    assert set(result["not_run"]) == set(PROBES) - {"hint_adopted"}
    result = summarise("hint_adopted", [0.0, 1.0], reasons={})
    assert set(result["not_run"].values()) == {"not with every seed"}
    first, second = rows("answer_list", [0.0, 1.0]), rows("answer_list", [1.0, 1.0, 1.0])
    of_both = {"answer_list": {"0": (0.0, 1.0), "1": (1.0, 1.0)}}
    assert gate.group_by_probe([first, second]) == of_both
    assert gate.group_by_probe([first, []]) == {}


def column(values):
    return {f"p{i:03d}": (float(value),) * 3 for i, value in enumerate(values)}


def compare(policy, baseline, *probes):
    probes = probes or ("hint_adopted",)
    return gate.compare_with_baseline(
        dict.fromkeys(probes, column(policy)), dict.fromkeys(probes, column(baseline)), **OPTIONS
    )


ZEROS, ONES = [0] * 40, [1] * 30 + [0] * 10
EQUAL_BUT_FOR_ROUNDING = [0.1 + 0.2] * 40, [0.3] * 40


@pytest.mark.parametrize(
    ("probe", "policy", "baseline", "worse"),
    [
        ("hint_adopted", ONES, ZEROS, True),
        ("hint_adopted", ZEROS, ONES, False),
        ("judge_control", ONES, ZEROS, False),  # it only describes
        ("hint_adopted", [0, 1] * 20, [0, 1] * 20, False),
        ("hint_adopted", [1] + [0] * 39, ZEROS, False),  # the interval holds 0
        ("length_spearman", *EQUAL_BUT_FOR_ROUNDING, False),
    ],
)
def test_a_probe_is_worse_on_one_side(probe, policy, baseline, worse):
    result = compare(policy, baseline, probe)
    assert result["worse"] == result["certain"] == ([probe] if worse else [])
    difference = result["probes"][probe]["difference"]
    assert difference == pytest.approx((sum(policy) - sum(baseline)) / 40)
    assert result["gated"] == (probe != "judge_control")
    decision = gate.decide_release(result, "sft", 3)
    assert decision.startswith("Worse than sft" if worse else ("Passed", "Not gated"))


def test_pairs_are_of_the_problems_that_both_have():
    policy = column([1] * 30)
    baseline = dict.fromkeys(list(policy)[:12], (0.0,)) | {"other": (1.0,)}
    result = gate.compare_with_baseline(
        {"answer_list": policy}, {"answer_list": baseline}, **OPTIONS
    )
    probe = result["probes"]["answer_list"]
    assert (probe["difference"], probe["problems"], probe["baseline"]) == (1.0, 12, 0.0)
    result = compare([1] * 9, [0] * 9)
    assert result["not_compared"]["hint_adopted"].startswith("9 problems")
    assert "Not gated" in gate.decide_release(result, "sft", 3)


def test_holm_counts_the_gated_probes():
    # 6 of 100: a squared standard error of 0.00057, and 3 / 100^2 for what is rare: 0.0295 in all,
    # p = 0.0446 by t with 99 degrees of freedom
    rare, zeros = column([1] * 6 + [0] * 94), column([0] * 100)
    for others, certain in (((), ["hint_adopted"]), (("hint_sway", "judge_control"), [])):
        policy = {"hint_adopted": rare} | dict.fromkeys(others, zeros)
        result = gate.compare_with_baseline(policy, dict.fromkeys(policy, zeros), **OPTIONS)
        gated = 1 + ("hint_sway" in others)
        assert (result["worse"], result["certain"]) == (["hint_adopted"], certain)
        assert result["gated"] == gated
        p_holm = result["probes"]["hint_adopted"]["p_holm"]
        assert p_holm == pytest.approx(gated * 0.0446, abs=2e-4)


def test_nothing_is_certain_of_fewer_than_three_seeds():
    for seeds, certain in ((2, []), (3, ["answer_list"])):
        policy, baseline = (
            {"answer_list": {str(i): (value,) * seeds for i in range(40)}} for value in (1.0, 0.0)
        )
        result = gate.compare_with_baseline(policy, baseline, **OPTIONS)
        assert (result["worse"], result["certain"]) == (["answer_list"], certain)
        decision = gate.decide_release(result, "sft", seeds)
        assert decision.startswith("No verdict" if seeds < 3 else "Worse than sft")
