from stages.studies import gate, probe_gate

OPTIONS = {"confidence": 0.95}


def summary(value, **not_run):
    interval = {"value": value, "low": value, "high": value, "problems": 20}
    return {"probes": {"answer_list": interval}, "not_run": not_run}


def test_what_is_worse_is_bold_and_what_was_not_run_says_why():
    values = {"answer_list": {str(i): (1.0,) for i in range(20)}}
    zeros = {"answer_list": {str(i): (0.0,) for i in range(20)}}
    compared = probe_gate.compare(values, zeros, **OPTIONS)
    text = gate.render(
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
    compared = probe_gate.compare(same, same, **OPTIONS)
    text = gate.render({"dpo": summary(1.0), "sft": summary(1.0)}, {"dpo": compared}, {}, "sft")
    assert "| 100.0 | 100.0 (+0.0 [+0.0, +0.0]) |" in text
    assert "Not run" not in text
