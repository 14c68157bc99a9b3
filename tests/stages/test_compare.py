"""The report: its numbers are those of the evaluations, and models write nothing but text in it."""

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
from pathlib import Path

import pytest
import report_inputs
from report_inputs import POLICIES, SEEDS, write_json
from ruamel.yaml import YAML

from stages import compare
from stages.records import lines
from stages.records.pools import ScoredPrompt
from stages.records.problems import Prompt
from stages.report import page
from stages.report.sections import CaptionedTable, Image, Section
from stages.rows import DATA, PROMPTS
from stages.runtime import journal

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Inputs of three policies and seeds, and the report on them."""
    path = tmp_path_factory.mktemp("whole")
    with contextlib.chdir(path):
        report_inputs.write()
        compare.main()
    return path


@pytest.fixture(autouse=True)
def folder(whole, tmp_path, monkeypatch):
    shutil.copytree(whole, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")


def read_metrics():
    return json.loads((compare.OUTPUT / "metrics.json").read_text(encoding="utf-8"))


def read(name):
    return (compare.OUTPUT / name).read_text(encoding="utf-8")


def list_logged():
    logged = journal.read_rows(Path("data/journals/compare/journal.jsonl"))
    return {name: value for row in logged for name, value in row.metrics.items()}


def test_numbers_are_means_of_the_evaluations_and_the_baseline_is_first():
    metrics = read_metrics()
    assert list(metrics["policies"]) == ["sft", "dpo", "grpo"]
    assert list(metrics["gains"]["mean_accuracy"]) == ["dpo", "grpo"]
    for name in metrics["policies"]:
        paths = [DATA / f"evaluations/{name}/{seed}/metrics.json" for seed in SEEDS]
        of_seeds = [json.loads(path.read_text())["mean_accuracy"] for path in paths]
        accuracy = metrics["policies"][name]["mean_accuracy"]
        assert list(accuracy["seeds"].values()) == of_seeds
        assert accuracy["value"] == pytest.approx(sum(of_seeds) / 3, abs=1e-6)
        assert list_logged()[f"{name}/mean_accuracy"] == accuracy["value"]
    with (compare.OUTPUT / "plots/accuracy.csv").open(encoding="utf-8") as file:
        row = {item["policy"]: item for item in csv.DictReader(file)}["dpo"]
    assert float(row["mean_accuracy"]) == metrics["policies"]["dpo"]["mean_accuracy"]["value"]
    assert read("verdict.txt").splitlines() == metrics["verdict"]
    headlines = {path.stem: json.loads(path.read_text()) for path in DATA.glob("headlines/*")}
    assert {name: pytest.approx(100 * each["mean_accuracy"]["value"], abs=0.005)
            for name, each in metrics["policies"].items()} == headlines["accuracy"]  # fmt: skip
    gains = metrics["gains"]["mean_accuracy"].items()
    assert headlines["gain"] == {name: round(100 * gain["value"], 2) for name, gain in gains}


def test_a_second_run_writes_the_same_bytes_without_a_time_or_a_path():
    def files():
        return {path: path.read_bytes() for path in sorted(compare.OUTPUT.rglob("*"))
                if path.is_file()}  # fmt: skip

    before = files()
    compare.main()
    assert files() == before
    for path, content in before.items():
        assert str(Path.cwd()).encode() not in content, path
        assert re.search(rb"seconds|Matplotlib|<dc:date>|20\d\d-\d\d", content) is None, path
    images = re.findall(r"\]\((.*?)\)", read("report.md"))
    assert images[0] == "plots/accuracy.svg"
    assert all((compare.OUTPUT / name).exists() for name in images)


def test_the_page_runs_its_own_script_alone_and_needs_no_other_file():
    html = read("report.html")
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert html.count("<script") == 1
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in html  # noqa: E501  # fmt: skip
    assert "&lt;script&gt;" in html
    assert set(re.findall(r'src="([^,]*),', html)) == {"data:image/svg+xml;base64"}
    assert "http" not in re.sub(r"http-equiv|http://127.0.0.1:9/x.png", "", html)


def test_every_text_of_the_page_is_escaped():
    inner = Section("<i>", ["<u>", Image("accuracy.svg", "<b>")])
    table = CaptionedTable("<c>", [{"<k>": "<d>"}])
    page.write_report(compare.OUTPUT, ["<v>"], {"<l>": "<f>"}, [Section("<h>", [inner, table])])
    html = read("report.html")
    for item in "biuvhckdlf":
        assert f"&lt;{item}&gt;" in html
        assert f"<{item}>" not in html


@pytest.mark.parametrize(("seeds", "policies", "mentions"), [
    ([0], POLICIES, "no verdict"), ([0, 1], POLICIES, "no verdict"),
    (SEEDS, {"sft": 0.5}, "no other policy"),
], ids=["one seed", "two seeds", "one policy"])  # fmt: skip
def test_with_few_seeds_or_one_policy_there_is_a_report_without_a_verdict(
    seeds, policies, mentions
):
    report_inputs.write(seeds, policies)
    compare.main()
    gains = read_metrics()["gains"]["mean_accuracy"]
    assert set(gains) == set(policies) - {"sft"}
    assert mentions in read("verdict.txt")
    for gain in gains.values():
        assert gain["significant"] is gain["p_holm"] is None
        assert gain["low"] < gain["value"] < gain["high"]


def test_what_was_not_measured_has_no_section():
    sections = ("Labels and rewards", "Training")
    assert all(f"# {name}" in read("report.md") for name in sections)
    plan = json.loads(Path("data/plan.json").read_text())
    write_json("plan.json", plan | {"pairs": {}, "steps": {}, "rewards": {}})
    for name in POLICIES:
        for seed in SEEDS:
            place = f"policies/{name}/training/{seed}"
            write_json(f"{place}/metrics.json", {"work": {"policy": report_inputs.MODEL}})
            Path(f"data/{place}/history.jsonl").write_text('{"index": 0, "metrics": {}}\n')
    compare.main()
    assert not any(f"# {name}" in read("report.md") for name in sections)
    assert "# Policies" in read("report.md")


def test_without_gold_answers_the_report_is_of_rewards():
    path = PROMPTS / "test.jsonl"
    prompts = [replace(prompt, answer=None) for prompt in list(lines.read_lines(path, Prompt))]
    lines.write_lines(path, prompts)
    for seed in SEEDS:
        for at, policy in enumerate(POLICIES):
            rows = [
                ScoredPrompt(
                    id=prompt.id, truncation_rate=0.0, mean_tokens=4.0,
                    scores={"preference": [at + 0.1 * number, at + 0.2 * number]},
                )
                for number, prompt in enumerate(prompts)
            ]  # fmt: skip
            lines.write_lines(DATA / f"evaluations/{policy}/{seed}/per_problem.jsonl", rows)
    compare.main()
    metrics = read_metrics()
    assert metrics["gains"]["reward/preference"]["grpo"]["value"] == 2.0
    expected = {f"{name}/reward/preference": metrics["policies"][name]["reward/preference"]["value"]
                for name in POLICIES}  # fmt: skip
    assert list_logged() == expected
    assert not {"✓ right", "✗ wrong"} & {*re.findall("[✓✗] [a-z]+", read("report.html"))}
    assert not (compare.OUTPUT / "plots/accuracy.svg").exists()
    assert (compare.OUTPUT / "plots/training-dpo.svg").exists()


@pytest.mark.slow
def test_dvc_shows_the_headlines_and_plots():
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
    assert len(table) == 1 + len(list(DATA.glob("headlines/*"))) <= 21
    assert max(map(len, table)) <= 120
    dvc("plots", "show")
    assert "Learning curves" in Path("dvc_plots/index.html").read_text()
    # The templates read columns that no option of DVC names.
    for template, file, columns in (
        ("accuracy", "accuracy", ["low", "high"]), ("curves", "training", ["metric", "seed"]),
    ):  # fmt: skip
        header = Path(f"data/report/plots/{file}.csv").read_text().splitlines()[0]
        written = (ROOT / f".dvc/plots/{template}.json").read_text()
        assert all(column in header and column in written for column in columns)
