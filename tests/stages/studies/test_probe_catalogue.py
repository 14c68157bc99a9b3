from stages.studies.probe_catalogue import PROBES, ProbeConfig, list_reasons_not_run
from stages.studies.probe_edits import PADDINGS
from stages.studies.probe_texts import MEASURES


def test_what_is_measured_is_in_it():
    assert set(MEASURES) == {name for name, item in PROBES.items() if item.needs == "pool"}
    padded = {f"{kind}_{what}" for kind in PADDINGS for what in ("raised", "gain")}
    assert padded <= set(PROBES)


def test_every_probe_without_a_value_has_its_own_reason():
    needs = dict.fromkeys(("reward", "process", "judge", "transfer", "refusals"))
    none = ProbeConfig.model_construct(**needs)
    reasons = list_reasons_not_run({"hint_adopted"}, none, has_chat_template=False)
    assert set(reasons) == set(PROBES) - {"hint_adopted"}
    assert reasons["list_gain"] == "no reward model named"
    assert reasons["split_change"] == "no process model named"
    assert reasons["judge_injection"] == "no judge named"
    assert reasons["transfer_accuracy"] == "no file of other problems named"
    assert reasons["over_refusal"].startswith("no chat template")
    assert "not generated" in reasons["redrawn_drop"]
    named = ProbeConfig.model_construct(**needs | {"reward": "preference", "refusals": "x.csv"})
    reasons = list_reasons_not_run(set(), named, has_chat_template=True)
    assert (
        reasons["list_gain"] == reasons["over_refusal"] == "not a single problem to measure it on"
    )
