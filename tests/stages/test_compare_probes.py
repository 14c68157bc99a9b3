import copy
import json
from pathlib import Path

import presets
import pytest

from stages import compare_probes

DATA, OUTPUT = compare_probes.DATA, compare_probes.OUTPUT


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def plan(**tables):
    content = copy.deepcopy(presets.CONTENT["recipes"]["comparison"]) | tables
    Path("params.yaml").write_text(json.dumps({"plan": content}), encoding="utf-8")


def write(stage, name, content):
    path = DATA / stage / name / "metrics.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def report():
    compare_probes.main()
    return (OUTPUT / "report.md").read_text(encoding="utf-8")


def test_a_plan_without_probes_has_a_report_that_says_so():
    plan(probe_policy={}, write_card={})
    assert report() == "# Probes of reward hacking\n\nNo policy of this plan is probed.\n"


def test_every_card_s_verdict_is_told_and_every_probe_has_a_row():
    entries = presets.CONTENT["recipes"]["comparison"]
    plan(**{table: {name: entries[table][name] for name in ("sft", "dpo")}
            for table in ("probe_policy", "write_card")})  # fmt: skip
    value = {"value": 0.25, "low": 0.2, "high": 0.3}
    for name in ("sft", "dpo"):
        probes = {"truncated": {"num_problems": 9, **value}}
        write("probe_policy", name, {"probes": probes, "not_run": {"transfer": "no file"}})
        write("write_card", name, {"gate": {}, "verdict": f"{name} passes."})
    text = report()
    assert "- **dpo**: dpo passes.\n- **sft**: sft passes." in text
    assert "| probe | sft | dpo |" in text
    assert json.loads((OUTPUT / "metrics.json").read_text())["verdicts"]["dpo"] == "dpo passes."
