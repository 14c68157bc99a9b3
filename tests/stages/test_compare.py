import base64
import contextlib
import csv
import hashlib
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
import report_inputs
from ruamel.yaml import YAML

from stages import compare
from stages.records import lines
from stages.records.pools import ProblemResult, ScoredPrompt
from stages.records.problems import Prompt
from stages.report import estimates, page
from stages.report.sections import CaptionedTable, Image, Section
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


def test_dvc_shows_a_narrow_table_of_headline_numbers_and_its_plots():
    paths = Path("data/headlines").iterdir()
    headlines = {path.stem: json.loads(path.read_text()) for path in paths}
    policies = metrics()["policies"]
    assert list(headlines["accuracy"]) == list(policies)
    assert len(headlines) <= 20
    for name, estimates_of_policy in policies.items():
        accuracy = 100 * estimates_of_policy["mean_accuracy"]["value"]
        assert headlines["accuracy"][name] == pytest.approx(accuracy, abs=0.005)
    gains = metrics()["gains"]["mean_accuracy"].items()
    assert headlines["gain"] == {name: round(100 * gain["value"], 2) for name, gain in gains}
    content = YAML(typ="safe").load(ROOT / "dvc.yaml")
    with Path("dvc.yaml").open("w") as file:
        YAML().dump({key: content[key] for key in ("metrics", "plots")}, file)

    def dvc(*words):
        command = [sys.executable, "-m", "dvc", *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert "ERROR" not in done.stderr
        return done.stdout

    dvc("init", "-q", "--no-scm")
    shutil.copytree(ROOT / ".dvc/plots", ".dvc/plots")
    table = dvc("metrics", "show").splitlines()
    assert max(map(len, table)) <= 120
    assert len(table) == 1 + len(headlines)
    dvc("plots", "show")
    page = Path("dvc_plots/index.html").read_text()
    for title in ("Test accuracy", "Learning curves"):
        assert title in page
    # The templates read columns that no option of DVC names.
    for template, file, columns in (
        ("accuracy", "accuracy", ["low", "high"]), ("curves", "training", ["metric", "seed"]),
    ):  # fmt: skip
        header = Path(f"data/report/plots/{file}.csv").read_text().splitlines()[0]
        written = (ROOT / f".dvc/plots/{template}.json").read_text()
        assert all(column in header and column in written for column in columns)


def test_the_report_begins_with_the_verdict_the_picture_and_what_was_compared():
    said = text("verdict.txt").splitlines()
    assert said == metrics()["verdict"]
    assert len(said) == 4
    assert re.match(r"Over 3 seeds and 40 test problems, sft has a mean accuracy of \d", said[0])
    page = text("report.html")
    body = page[page.index("<body>") :]
    parts = ("<h1>", said[0].partition("(")[0], "<img src=", "<dl>", "<nav", "<table")
    places = [body.index(part) for part in parts]
    assert places == sorted(places)
    assert text("report.md").index(said[0]) < text("report.md").index("| policy |")
    for fact in ("Llama of 10 parameters in 2 layers", "1,200 train, 100 preference, 30 dev and 40",
                 f"torch {version('torch')} and numpy {version('numpy')}"):  # fmt: skip
        assert fact in text("report.md")
        assert fact in body
    method = "| dpo | DPO | dpo | sft | pairs/verifier | 12 | 0.0001 | 1,000 | 0 |"
    assert method in text("report.md")


@pytest.mark.slow
def test_controls_have_a_section_and_change_nothing_else():
    before = metrics()
    assert "Controls" not in text("report.md")
    report_inputs.write(policies=report_inputs.POLICIES | {"coin": 0.5, "short": 0.7})
    plan = json.loads(Path("data/plan.json").read_text(encoding="utf-8"))
    plan["policies"]["coin"] |= {"from": "sft", "control": "no_effect"}
    plan["policies"]["short"] |= {"from": "sft", "control": "no_skill"}
    report_inputs.write_json("plan.json", plan)
    for name in ("coin", "short"):
        for seed in report_inputs.SEEDS:
            content = report_inputs.measured()["policies/dpo/training"]
            report_inputs.write_json(f"policies/{name}/training/{seed}/metrics.json", content)
            report_inputs.write_json(f"samples/{name}/{seed}/metrics.json", {})
    compare.main()
    after = metrics()
    for key in ("policies", "gains", "pairs", "selection", "difficulty", "forecast", "best_on_dev"):
        assert after[key] == before[key], key
    assert after["verdict"][:4] == before["verdict"]
    (undecided, paid) = after["verdict"][4:]
    assert "coin does not differ significantly from sft, which is no proof" in undecided
    assert paid.startswith("Paid for no skill: short (+")
    shown = text("report.md")
    section = shown[shown.index("## Controls") : shown.index("## Methods")]
    assert "| coin |" in section
    assert "| short |" in section
    assert undecided in section
    methods = shown[shown.index("## Methods") : shown.index("## Training")]
    assert "| coin |" in methods
    assert "coin" not in shown[: shown.index("## Controls")].replace(undecided, "")
    headlines = json.loads(Path("data/headlines/control.json").read_text())
    assert set(headlines) == {"coin", "short"}
    assert "coin" not in json.loads(Path("data/headlines/accuracy.json").read_text())


def test_what_is_not_there_has_no_section():
    assert "Labels and rewards" in text("report.md")
    plan = json.loads(Path("data/plan.json").read_text(encoding="utf-8"))
    report_inputs.write_json("plan.json", plan | {"pairs": {}, "steps": {}, "rewards": {}})
    for name in report_inputs.POLICIES:
        shutil.rmtree(f"data/policies/{name}/training")
        for seed in report_inputs.SEEDS:
            report_inputs.write_json(f"policies/{name}/training/{seed}/metrics.json", {
                "work": {"policy": report_inputs.MODEL}})  # fmt: skip
            history = Path(f"data/policies/{name}/training/{seed}/history.jsonl")
            history.write_text('{"index": 0, "metrics": {}}\n', encoding="utf-8")
    compare.main()
    for name in ("report.md", "report.html"):
        assert "Labels and rewards" not in text(name)
        assert re.search(r"Training<|# Training", text(name)) is None
        assert "Policies" in text(name)


def test_backticks_are_code_on_the_page():
    page_text = re.sub(r"<script>.*</script>", "", text("report.html"), flags=re.DOTALL)
    assert "`" not in page_text
    assert "<code>stages/presets.yaml</code>" in page_text


def test_lenient_accuracy_stands_beside_strict_where_they_differ():
    assert "strict, %" not in text("report.md").partition("### ")[0]
    for seed in report_inputs.SEEDS:
        path = DATA / f"evaluations/sft/{seed}/per_problem.jsonl"
        rows = list(lines.read_lines(path, ProblemResult))
        lines.write_lines(path, [replace(row, mean_lenient=1.0) for row in rows])
    compare.main()
    table = text("report.md").partition("## Policies")[2]
    assert "| strict, % | lenient, % | gain by format, % |" in table
    assert re.search(r"\| sft .*\| 100\.0 \| – \|", table)


def test_the_baseline_is_first_whatever_the_order_of_rows():
    assert list(metrics()["policies"]) == ["sft", "dpo", "grpo"]
    assert list(metrics()["gains"]["mean_accuracy"]) == ["dpo", "grpo"]


def test_numbers_are_those_of_the_evaluations():
    of_seeds = [
        json.loads(Path(f"data/evaluations/dpo/{seed}/metrics.json").read_text(encoding="utf-8"))
        for seed in report_inputs.SEEDS
    ]
    dpo = metrics()["policies"]["dpo"]["mean_accuracy"]
    assert list(dpo["seeds"].values()) == [seed["mean_accuracy"] for seed in of_seeds]
    assert dpo["value"] == pytest.approx(sum(dpo["seeds"].values()) / 3, abs=1e-6)
    with (compare.OUTPUT / "plots/accuracy.csv").open(encoding="utf-8") as file:
        row = {item["policy"]: item for item in csv.DictReader(file)}["dpo"]
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
    script = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert len(script) == html.count("<script") == 1
    sha256 = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    digest = f"sha256-{sha256}"
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src '{digest}'"
    assert f"{policy}; base-uri 'none'" in html
    assert "&lt;script&gt;" in html
    assert set(re.findall(r'src="([^,]*),', html)) == {"data:image/svg+xml;base64"}
    assert "http" not in re.sub(r"http-equiv|http://127.0.0.1:9/x.png", "", html)


def test_every_image_of_the_markdown_is_there():
    images = re.findall(r"\]\((.*?)\)", text("report.md"))
    assert images[0] == "plots/accuracy.svg"
    assert all((compare.OUTPUT / name).exists() for name in images)


def test_all_that_is_said_is_escaped():
    inner = Section("<i>", ["<u>", Image("accuracy.svg", "<b>")])
    table = CaptionedTable("<c>", [{"<k>": "<d>"}])
    page.write_report(compare.OUTPUT, ["<v>"], {"<l>": "<f>"}, [Section("<h>", [inner, table])])
    for item in ("<b>", "<i>", "<u>", "<v>", "<h>", "<c>", "<k>", "<d>", "<l>", "<f>"):
        assert item.replace("<", "&lt;").replace(">", "&gt;") in text("report.html")
        assert item not in text("report.html")


def test_it_imports_no_torch():
    unwanted = ("torch", "transformers", "mlflow")
    code = f"import sys, stages.compare\nprint([m for m in {unwanted} if sys.modules.get(m)])"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_without_gold_answers_the_report_is_of_rewards_and_calls_nothing_right():
    path = PROMPTS / "test.jsonl"
    prompts = [replace(line, answer=None) for line in list(lines.read_lines(path, Prompt))]
    lines.write_lines(path, prompts)
    for seed in report_inputs.SEEDS:
        for at, policy in enumerate(report_inputs.POLICIES):
            rows = [
                ScoredPrompt(
                    id=item.id,
                    scores={"preference": [at + 0.1 * number, at + 0.2 * number]},
                    truncation_rate=0.0,
                    mean_tokens=4.0,
                )
                for number, item in enumerate(prompts)
            ]
            lines.write_lines(DATA / f"evaluations/{policy}/{seed}/per_problem.jsonl", rows)
    compare.main()
    result = metrics()
    assert list(result["policies"]) == ["sft", "dpo", "grpo"]
    assert result["gains"]["reward/preference"]["grpo"]["value"] == 2.0
    assert "By preference, over 3 seeds and 40 test prompts" in text("verdict.txt")
    page = text("report.html")
    assert "wins against sft, %" in page
    assert "Right answer" not in page
    assert not {"✓ right", "✗ wrong"} & {*re.findall("[✓✗] [a-z]+", page)}
    assert "accuracy.svg" not in text("report.md")
    assert not (compare.OUTPUT / "plots/accuracy.svg").exists()
    assert (compare.OUTPUT / "plots/training-dpo.svg").exists()
