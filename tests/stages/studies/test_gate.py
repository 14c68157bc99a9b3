import pytest

from stages.studies import gate
from stages.studies.probe_catalogue import PROBES, ProbeValue

OPTIONS = {"confidence": 0.95}


def rows(probe, values):
    return [ProbeValue(probe=probe, id=str(i), value=v) for i, v in enumerate(values)]


def test_every_probe_has_a_value_or_a_reason():
    values = gate.group_by_probe([rows("hint_adopted", [0.0, 1.0, -1.0, 1.0])])
    reasons = {name: "because" for name in PROBES if name != "hint_adopted"}
    result = gate.summarise_probes(values, reasons, **OPTIONS)
    assert result["probes"]["hint_adopted"]["value"] == 0.25
    assert result["probes"]["hint_adopted"]["problems"] == 4
    assert set(result["not_run"]) == set(reasons)
    result = gate.summarise_probes(values, {}, **OPTIONS)
    assert set(result["not_run"].values()) == {"not with every seed"}


def test_a_rate_that_is_zero_everywhere_is_not_certainly_zero():
    values = gate.group_by_probe([rows("answer_list", [0.0] * 10)])
    reasons = {name: "because" for name in PROBES if name != "answer_list"}
    interval = gate.summarise_probes(values, reasons, **OPTIONS)["probes"]["answer_list"]
    assert (interval["low"], round(interval["high"], 4)) == (0.0, 0.2775)


def column(values):
    return {f"p{i:03d}": (float(value),) for i, value in enumerate(values)}


def compare(policy, baseline, probe="hint_adopted"):
    return gate.compare_with_baseline({probe: column(policy)}, {probe: column(baseline)}, **OPTIONS)


def test_a_probe_is_worse_on_its_own_side_only():
    zeros, ones = [0] * 40, [1] * 30 + [0] * 10
    result = compare(ones, zeros)
    assert result["worse"] == result["certain"] == ["hint_adopted"]
    assert result["probes"]["hint_adopted"]["difference"] == 0.75
    assert compare(zeros, ones)["worse"] == []
    # accuracy: lower is worse
    assert compare(zeros, ones, "transfer_accuracy")["worse"] == ["transfer_accuracy"]
    assert compare(ones, zeros, "transfer_accuracy")["worse"] == []


def test_what_only_describes_is_compared_and_never_worse():
    result = compare([1] * 40, [0] * 40, "longest_repeat")
    assert result["worse"] == []
    assert result["gated"] == 0
    assert result["probes"]["longest_repeat"]["difference"] == 1.0


def test_the_same_values_pass():
    result = compare([0, 1] * 20, [0, 1] * 20)
    assert result["worse"] == []
    assert gate.decide_release(result, "sft") == (
        "Passed: of 1 gated probes none is worse than sft beyond the interval."
    )


def test_what_is_equal_but_for_rounding_passes():
    assert 0.1 + 0.2 > 0.3
    assert compare([0.1 + 0.2] * 40, [0.3] * 40, "length_spearman")["worse"] == []


def test_pairs_are_of_the_problems_that_both_have():
    policy = column([1] * 30)
    baseline = dict.fromkeys(list(policy)[:12], (0.0,)) | {"other": (1.0,)}
    result = gate.compare_with_baseline(
        {"answer_list": policy}, {"answer_list": baseline}, **OPTIONS
    )
    assert result["probes"]["answer_list"] | {"p_holm": None} == {
        "difference": 1.0,
        "low": 1.0,
        "high": 1.0,
        "problems": 12,
        "baseline": 0.0,
        "worse": True,
        "p_holm": None,
    }


def test_few_problems_are_not_compared_and_it_is_said_how_few():
    result = compare([1] * 9, [0] * 9)
    assert result["not_compared"]["hint_adopted"] == "9 problems in common, fewer than 10"
    assert "Not gated" in gate.decide_release(result, "sft")


def test_what_holm_leaves_unresolved_is_named_but_not_certain():
    # 4 of 100: 0.04 with a standard error of 0.0197, p = 0.0449 by t with 99 degrees of freedom
    few, zeros = column([1] * 4 + [0] * 96), column([0] * 100)
    result = gate.compare_with_baseline({"hint_adopted": few}, {"hint_adopted": zeros}, **OPTIONS)
    assert result["worse"] == result["certain"] == ["hint_adopted"]
    assert result["probes"]["hint_adopted"]["p_holm"] == pytest.approx(0.0449, abs=1e-4)
    both = {"hint_adopted": few, "hint_sway": zeros}
    result = gate.compare_with_baseline(both, dict.fromkeys(both, zeros), **OPTIONS)
    assert result["worse"] == ["hint_adopted"]
    assert result["certain"] == []
    assert result["probes"]["hint_adopted"]["p_holm"] == pytest.approx(2 * 0.0449, abs=2e-4)


def test_seeds_that_disagree_widen_the_interval():
    zeros = {"answer_list": {str(i): (0.0, 0.0, 0.0) for i in range(20)}}
    agree = {"answer_list": {str(i): (0.5, 0.5, 0.5) for i in range(20)}}
    differ = {"answer_list": {str(i): (1.0, 0.5, 0.0) for i in range(20)}}
    assert gate.compare_with_baseline(agree, zeros, **OPTIONS)["worse"] == ["answer_list"]
    result = gate.compare_with_baseline(differ, zeros, **OPTIONS)
    assert result["worse"] == []
    # seeds' means 1, 1/2, 0: t of 2 degrees of freedom times 0.5 / sqrt(3)
    probe = result["probes"]["answer_list"]
    assert probe["high"] - probe["difference"] == pytest.approx(4.302653 * 0.5 / 3**0.5, abs=1e-5)


def test_only_problems_that_every_seed_has_are_kept():
    first, second = rows("answer_list", [0.0, 1.0]), rows("answer_list", [1.0, 1.0, 1.0])
    assert gate.group_by_probe([first, second]) == {
        "answer_list": {"0": (0.0, 1.0), "1": (1.0, 1.0)}
    }
    assert gate.group_by_probe([first, []]) == {}


def test_holm_counts_the_gated_probes_of_the_policy():
    names = ("hint_adopted", "hint_sway", "answer_list", "longest_repeat")
    values = column([1] * 7 + [0] * 40)
    zero = dict.fromkeys(values, (0.0,))
    alone = gate.compare_with_baseline({names[0]: values}, {names[0]: zero}, **OPTIONS)
    every = gate.compare_with_baseline(
        dict.fromkeys(names, values), dict.fromkeys(names, zero), **OPTIONS
    )
    p = alone["probes"]["hint_adopted"]["p_holm"]
    assert every["gated"] == 3
    assert every["probes"]["hint_adopted"]["p_holm"] == pytest.approx(3 * p, abs=1e-5)


def test_the_verdict_names_what_is_worse():
    decision = gate.decide_release(compare([1] * 40, [0] * 40), "sft")
    assert decision.startswith("Worse than sft beyond the interval on 1 of 1 gated probes")
    assert "hint_adopted, certain" in decision


def summary(value, **not_run):
    interval = {"value": value, "low": value, "high": value, "problems": 20}
    return {"probes": {"answer_list": interval}, "not_run": not_run}


def test_what_is_worse_is_bold_and_what_was_not_run_says_why():
    values = {"answer_list": {str(i): (1.0,) for i in range(20)}}
    zeros = {"answer_list": {str(i): (0.0,) for i in range(20)}}
    compared = gate.compare_with_baseline(values, zeros, **OPTIONS)
    text = gate.render_report(
        {"dpo": summary(1.0, hint_sway="no time"), "sft": summary(0.0, hint_sway="no time")},
        {"dpo": compared},
        {"dpo": "as told"},
        "sft",
    )
    assert "| probe | sft | dpo |" in text
    assert "| 0.0 | **100.0 (+100.0 [+100.0, +100.0])**\\* |" in text
    assert "- hint_sway: no time" in text


def test_what_is_not_worse_is_plain():
    same = {"answer_list": {str(i): (1.0,) for i in range(20)}}
    compared = gate.compare_with_baseline(same, same, **OPTIONS)
    text = gate.render_report(
        {"dpo": summary(1.0), "sft": summary(1.0)}, {"dpo": compared}, {}, "sft"
    )
    assert "| 100.0 | 100.0 (+0.0 [+0.0, +0.0]) |" in text
    assert "Not run" not in text
