import contextlib
import csv
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import report_inputs

from stages import compare
from stages.records import lines
from stages.records.pools import ScoredPrompt
from stages.records.problems import Prompt
from stages.report import estimates, page
from stages.report.sections import Image, Section
from stages.rows import DATA, PROMPTS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Inputs of three policies and seeds, and the report on them."""
    path = tmp_path_factory.mktemp("made")
    with contextlib.chdir(path):
        report_inputs.write()
        compare.main()
    return path


@pytest.fixture(autouse=True)
def folder(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path / "own")
    monkeypatch.chdir(tmp_path / "own")


def metrics():
    return json.loads((compare.OUTPUT / "metrics.json").read_text(encoding="utf-8"))


def text(name):
    return (compare.OUTPUT / name).read_text(encoding="utf-8")


def test_the_report_begins_with_the_picture_and_the_verdict():
    said = text("verdict.txt").splitlines()
    assert said == metrics()["verdict"]
    assert len(said) == 3
    assert re.match(r"Over 3 seeds and 40 test problems, sft has a mean accuracy of \d", said[0])
    page = text("report.html")
    body = page[page.index("<body>") :]
    places = [body.index(one) for one in ("<h1>", "<img src=", said[0].partition("(")[0], "<table")]
    assert places == sorted(places)
    assert text("report.md").index(said[0]) < text("report.md").index("| policy |")


def test_the_baseline_is_first_whatever_the_order_of_rows():
    assert list(metrics()["policies"]) == ["sft", "dpo", "grpo"]
    assert list(metrics()["gains"]["mean_accuracy"]) == ["dpo", "grpo"]


def test_numbers_are_those_of_the_evaluations():
    of_seeds = [
        json.loads(Path(f"data/evaluations/dpo/{seed}/metrics.json").read_text(encoding="utf-8"))
        for seed in report_inputs.SEEDS
    ]
    dpo = metrics()["policies"]["dpo"]["mean_accuracy"]
    assert list(dpo["seeds"].values()) == [one["mean_accuracy"] for one in of_seeds]
    assert dpo["value"] == pytest.approx(sum(dpo["seeds"].values()) / 3, abs=1e-6)
    with (compare.OUTPUT / "plots/accuracy.csv").open(encoding="utf-8") as file:
        row = {one["policy"]: one for one in csv.DictReader(file)}["dpo"]
    assert float(row["mean_accuracy"]) == dpo["value"]
    assert float(row["seed_1"]) == dpo["seeds"]["1"]


def test_with_one_seed_there_is_no_verdict():
    report_inputs.write([0])
    compare.main()
    assert "no verdict over seeds is possible" in text("verdict.txt")
    for name in ("report.md", "report.html"):
        assert "p (Holm)" not in text(name)
        assert re.search(r"each seed( \||</th>)", text(name)) is None
        assert "nothing of another training run" in text(name)
    gain = metrics()["gains"]["mean_accuracy"]["dpo"]
    assert gain["low"] < gain["value"] < gain["high"]
    assert gain["significant"] is gain["p_holm"] is None


def test_one_policy_alone_has_a_report():
    report_inputs.write(policies={"sft": 0.5})
    compare.main()
    assert metrics()["gains"]["mean_accuracy"] == metrics()["pairs"] == {}
    assert "no other policy to compare" in text("verdict.txt")


def test_other_problems_of_one_seed_are_refused():
    path = Path("data/evaluations/dpo/1/per_problem.jsonl")
    rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(rows[:-1]), encoding="utf-8")
    with pytest.raises(ValueError, match="40 of sft and 39 of dpo, seed 1"):
        estimates.read_results(Path("data/evaluations"), ["sft", "dpo"], [0, 1, 2], 0.95)


def test_a_second_run_writes_the_same_bytes_without_a_time_or_a_path():
    written = []
    for again in (False, True):
        if again:
            compare.main()
        files = sorted(path for path in compare.OUTPUT.rglob("*") if path.is_file())
        written.append({str(path): path.read_bytes() for path in files})
    assert written[0] == written[1]
    for name, content in written[0].items():
        assert b"Matplotlib" not in content, name
        assert str(Path.cwd()).encode() not in content, name
        assert re.search(rb"seconds|<dc:date>|20\d\d-\d\d", content) is None, name
    assert {Path(name).name for name in written[0]} >= {
        "report.html", "report.md", "metrics.json", "verdict.txt", "accuracy.svg", "accuracy.csv",
        "accuracy_by_n.svg", "accuracy_by_n.csv", "training-dpo.svg", "training.csv",
    }  # fmt: skip


def test_the_page_needs_no_other_file_and_escapes_what_models_wrote():
    html = text("report.html")
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert set(re.findall(r'src="([^,]*),', html)) == {"data:image/svg+xml;base64"}
    assert "http" not in re.sub(r"http-equiv|http://127.0.0.1:9/x.png", "", html)


def test_every_image_of_the_markdown_is_there():
    images = re.findall(r"\]\((.*?)\)", text("report.md"))
    assert images[0] == "plots/accuracy.svg"
    assert all((compare.OUTPUT / name).exists() for name in images)


def test_all_that_is_said_is_escaped():
    inner = Section("<i>", ["<u>", Image("accuracy.svg", "<b>")])
    page.write_report(compare.OUTPUT, ["<v>"], [Section("<s>", [inner])])
    for one in ("<b>", "<i>", "<u>", "<v>", "<s>"):
        assert one.replace("<", "&lt;").replace(">", "&gt;") in text("report.html")
        assert one not in text("report.html")


def test_it_imports_no_torch():
    unwanted = ("torch", "transformers", "mlflow")
    code = f"import sys, stages.compare\nprint([m for m in {unwanted} if sys.modules.get(m)])"
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_without_gold_answers_the_report_is_of_rewards_and_calls_nothing_right():
    path = PROMPTS / "test.jsonl"
    prompts = [replace(one, answer=None) for one in list(lines.read_lines(path, Prompt))]
    lines.write_lines(path, prompts)
    for seed in report_inputs.SEEDS:
        for at, policy in enumerate(report_inputs.POLICIES):
            rows = [
                ScoredPrompt(
                    id=one.id,
                    scores={"preference": [at + 0.1 * number, at + 0.2 * number]},
                    truncation_rate=0.0,
                    mean_tokens=4.0,
                )
                for number, one in enumerate(prompts)
            ]
            lines.write_lines(DATA / f"evaluations/{policy}/{seed}/per_problem.jsonl", rows)
    compare.main()
    found = metrics()
    assert list(found["policies"]) == ["sft", "dpo", "grpo"]
    assert found["gains"]["reward/preference"]["grpo"]["value"] == 2.0
    assert "By preference, over 3 seeds and 40 test prompts" in text("verdict.txt")
    page = text("report.html")
    assert "wins against sft, %" in page
    assert "Right answer" not in page
    assert not {"✓ right", "✗ wrong"} & {*re.findall("[✓✗] [a-z]+", page)}
    assert "accuracy.svg" not in text("report.md")
    assert not (compare.OUTPUT / "plots/accuracy.svg").exists()
    assert (compare.OUTPUT / "plots/training-dpo.svg").exists()
