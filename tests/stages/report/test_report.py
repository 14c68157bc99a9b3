"""The report on small inputs: a golden text, and what it is made of.

A change on purpose: `PYTHONPATH=tests python -m tests.stages.report.test_report` writes the text;
read its diff.
"""

import base64
import contextlib
import hashlib
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import report_inputs
import studied_run
from dvc_data.hashfile.hash_info import HashInfo
from dvc_data.hashfile.tree import Tree
from markdown_it import MarkdownIt
from matplotlib.axes import Axes
from ruamel.yaml import YAML
from toy_repo import init_dvc

from stages import compare
from stages.records import lines
from stages.records.episodes import Episode, StartProblem
from stages.records.pools import ScoredPrompt
from stages.records.problems import Prompt
from stages.records.temperatures import TemperatureResult
from stages.report import (
    controls,
    conversations,
    episode_comparison,
    experiment,
    markdown,
    page,
    plots,
    stage_metrics,
    tables,
    transcripts,
    verdict,
)
from stages.report.sections import CaptionedTable
from stages.runtime import journal

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).with_name("report.golden.md")
RATES = {"dpo": 0.5, "sft": 0.1, "grpo": 0.9}
CONTROLS = {"coin": ("no_effect", 0.5), "short": ("no_skill", 0.7)}
SEEDS = report_inputs.SEEDS


def write_run():
    """Three policies, two controls, episodes in two environments, and the report, in the folder."""
    policies = report_inputs.POLICIES | {name: rate for name, (_, rate) in CONTROLS.items()}
    report_inputs.write(policies=policies)
    plan = json.loads(Path("data/plan.json").read_text(encoding="utf-8"))
    for name, (kind, _) in CONTROLS.items():
        plan["policies"][name] |= {"from": "sft", "control": kind}
        for seed in SEEDS:
            content = report_inputs.METRICS["policies/dpo/training"]
            report_inputs.write_json(f"policies/{name}/training/{seed}/metrics.json", content)
    report_inputs.write_json("plan.json", plan)
    report_inputs.write_episodes("calculator", RATES)
    report_inputs.write_episodes("maze", {"dpo": 0.5})
    compare.main()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("written")
    with contextlib.chdir(path):
        write_run()
    return path


@pytest.fixture
def run(written, tmp_path, monkeypatch):
    shutil.copytree(written, tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")
    return tmp_path / "run"


def read(folder, name):
    return (folder / compare.OUTPUT / name).read_text(encoding="utf-8")


def strip(text):
    """Without the versions of packages."""
    return re.sub(r"- \*\*Versions.*\n", "", text)


def test_the_report_is_the_golden_one(written):
    assert strip(read(written, "report.md")) == GOLDEN.read_text(encoding="utf-8")


def test_what_models_wrote_is_text_on_the_page_and_in_markdown(run):
    path = Path("data/episodes/sft-calculator/0/episodes.jsonl")
    answer = {"role": "assistant", "content": "<b>\x1b[2J\u202e"}
    rows = [replace(row, messages=[*row.messages[:-1], answer])
        for row in lines.read_lines(path, Episode)]  # fmt: skip
    lines.write_lines(path, rows)
    compare.main()
    html, text = read(run, "report.html"), read(run, "report.md")
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert html.count("<script") == 1
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'; " in html
    assert f"script-src 'sha256-{digest}'" in html
    assert set(re.findall(r'src="([^,]*),', html)) == {"data:image/svg+xml;base64"}
    assert "http" not in re.sub(r"http-equiv|http://127.0.0.1:9", "", html)
    assert "&lt;script&gt;document.title" in html
    assert not re.search("[\x1b\u202e]", html)
    assert "&lt;b&gt;\\x1b[2J\\u202e" in html
    parsed = MarkdownIt("commonmark").parse(text)
    kinds = [child.type for token in parsed for child in [token, *(token.children or [])]]
    assert not any("html" in kind for kind in kinds)
    assert kinds.count("image") == text.count("](plots/")


def read_metrics():
    return json.loads(read(Path(), "metrics.json"))


def list_logged():
    logged = journal.read_rows(Path("data/journals/compare/journal.jsonl"))
    return {name: value for row in logged for name, value in row.metrics.items()}


def test_numbers_are_means_of_the_evaluations_in_every_file(run):
    metrics = read_metrics()
    paths = Path("data/headlines").iterdir()
    headlines = {path.stem: json.loads(path.read_text()) for path in paths}
    names = ["sft", "dpo", "grpo"]
    assert list(metrics["policies"]) == list(headlines["success_calculator"]) == names
    for name, estimates in metrics["policies"].items():
        paths = [Path(f"data/evaluations/{name}/{seed}/metrics.json") for seed in SEEDS]
        accuracy = estimates["mean_accuracy"]
        of_seeds = [json.loads(path.read_text())["mean_accuracy"] for path in paths]
        assert list(accuracy["seeds"].values()) == of_seeds
        assert accuracy["value"] == pytest.approx(np.mean(of_seeds), abs=1e-6)
        assert list_logged()[f"{name}/mean_accuracy"] == accuracy["value"]
    assert read(run, "verdict.txt").splitlines() == metrics["verdict"]
    dpo, gains, coin = metrics["policies"]["dpo"], metrics["gains"], metrics["controls"]
    rows = {
        # a row of metrics.json -> headlines of its value, low and high
        ("accuracy", "accuracy_low"): dpo["mean_accuracy"],
        ("gain", "gain_low", "gain_high"): gains["mean_accuracy"]["dpo"],
        ("dev_accuracy",): dpo["dev_accuracy"],
        ("greedy_accuracy",): dpo["greedy_accuracy"],
        ("gain_at_best_temperature",): gains["best_temperature_accuracy"]["dpo"],
    }
    for names, row in rows.items():
        shown = [headlines[name]["dpo"] for name in names]
        bounds = [100 * row[key] for key in ("value", "low", "high")[: len(names)]]
        assert shown == pytest.approx(bounds, abs=0.0051)
    low = coin["differences"]["no_effect"]["coin"]["low"]
    assert headlines["control_low"]["coin"] == pytest.approx(100 * low, abs=0.0051)
    assert "sft" not in headlines["gain"]


def test_a_policy_that_was_not_evaluated_is_compared_by_its_episodes(run):
    def leave_out(*names):
        shares = dict(zip(SEEDS, (0.5, 0.625, 0.25), strict=True))
        for name, (seed, share) in itertools.product(names, shares.items()):
            folder = f"evaluations/{name}/{seed}"
            metrics = {"cut/dev": 0.3, "cut/test": share, "generated_tokens": 0, "work": {}}
            report_inputs.write_json(f"{folder}/metrics.json", metrics)
            for file in ("per_problem.jsonl", "temperatures.jsonl"):
                Path(f"data/{folder}/{file}").write_text("")

    plan = json.loads(Path("data/plan.json").read_text())
    plan["policies"]["short"]["from"] = "grpo"  # a control, which has nothing to be compared with
    report_inputs.write_json("plan.json", plan)
    leave_out("grpo", "coin")  # coin is a control
    compare.main()
    metrics, text = read_metrics(), read(run, "verdict.txt")
    assert list(metrics["policies"]) == ["sft", "dpo"]
    assert "controls" not in metrics
    assert list(metrics["episodes"]["calculator"]["policies"]) == ["sft", "dpo", "grpo"]
    assert "grpo was not evaluated on problems: 62% of its comp" in text
    assert "short is a control of grpo, and as that was not" in text
    leave_out("sft")
    with pytest.raises(ValueError, match=r"sft was not evaluated .*baseline"):
        compare.main()


def test_a_second_run_writes_the_same_bytes_without_a_time_or_a_path(run):
    def files():
        return {path: path.read_bytes() for path in sorted(compare.OUTPUT.rglob("*"))
                if path.is_file()}  # fmt: skip

    before = files()
    compare.main()
    assert files() == before
    for path, content in before.items():
        assert str(run).encode() not in content, path
        assert re.search(rb"seconds|Matplotlib|<dc:date>|20\d\d-\d\d", content) is None, path
    assert all((compare.OUTPUT / name).exists()
        for name in re.findall(r"\]\((plots/.*?)\)", read(run, "report.md")))  # fmt: skip


@pytest.mark.parametrize(("seeds", "policies", "mentions"), [
    ([0], report_inputs.POLICIES, "no verdict"), ([0, 1], report_inputs.POLICIES, "no verdict"),
    (SEEDS, {"sft": 0.5}, "no other policy"),
], ids=["one seed", "two seeds", "one policy"])  # fmt: skip
def test_with_few_seeds_or_one_policy_there_is_a_report_without_a_verdict(
    seeds, policies, mentions, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    report_inputs.write(seeds, policies)
    compare.main()
    gains = read_metrics()["gains"]["mean_accuracy"]
    assert set(gains) == set(policies) - {"sft"}
    assert mentions in read(tmp_path, "verdict.txt")
    text = read(tmp_path, "report.md")
    for words in ("at the best temperature on dev problems, with", "as sampled and at its best",
                  "Single: one sample, at the best temperature"):  # fmt: skip
        assert words in text
    for gain in gains.values():
        assert gain["significant"] is gain["p_holm"] is None
        assert gain["low"] < gain["value"] < gain["high"]


def test_what_was_not_measured_has_no_section(run):
    sections = ("Labels and rewards", "Training")
    assert all(f"# {name}" in read(run, "report.md") for name in sections)
    plan = json.loads(Path("data/plan.json").read_text())
    plan |= {"pairs": {}, "steps": {}, "rewards": {}}
    for name in CONTROLS:
        plan["policies"][name]["control"] = "no_skill"
    report_inputs.write_json("plan.json", plan)
    for training in Path("data").glob("policies/*/training/*"):
        place = training.relative_to("data") / "metrics.json"
        report_inputs.write_json(place, {"work": {"policy": report_inputs.MODEL}})
        (training / "history.jsonl").write_text('{"index": 0, "metrics": {}}\n')
    compare.main()
    text = read(run, "report.md")
    assert not any(f"# {name}" in text for name in sections)
    assert "# Controls" in text, "of one kind alone"


def test_where_no_temperature_is_chosen_nothing_speaks_of_the_best(run):
    for path in Path("data/evaluations").glob("*/*/temperatures.jsonl"):
        rows = list(lines.read_lines(path, TemperatureResult))
        lines.write_lines(path, rows[120:])  # 40 dev problems, at three temperatures each
    compare.main()
    for path in [*compare.OUTPUT.rglob("*.*"), *Path("data/headlines").iterdir()]:
        text = f"{path} {'' if path.name == 'report.html' else path.read_text(encoding='utf-8')}"
        assert not re.search("at.best|best.temperature", text), path
    assert not (compare.OUTPUT / "plots/parts.svg").exists()
    assert "takes 75 dev problems" in read(run, "verdict.txt")


def test_without_gold_answers_the_report_is_of_rewards(run):
    path, names = Path("data/prompts/test.jsonl"), [*report_inputs.POLICIES, *CONTROLS]
    prompts = [replace(prompt, answer=None) for prompt in lines.read_lines(path, Prompt)]
    lines.write_lines(path, prompts)
    for seed, (at, policy) in itertools.product(SEEDS, enumerate(names)):
        rows = [ScoredPrompt(id=prompt.id, truncation_rate=0.0, mean_tokens=4.0,
            scores={"preference": [at + 0.1 * number, at + 0.2 * number]})
            for number, prompt in enumerate(prompts)]  # fmt: skip
        lines.write_lines(Path(f"data/evaluations/{policy}/{seed}/per_problem.jsonl"), rows)
    compare.main()
    metrics = read_metrics()
    assert metrics["gains"]["reward/preference"]["grpo"]["value"] == 2.0
    assert list_logged() == {f"{name}/reward/preference": row["reward/preference"]["value"]
        for name, row in metrics["policies"].items()}  # fmt: skip
    assert not re.search("✓ right|✗ wrong", read(run, "report.html"))
    assert controls.WITHOUT_ANSWERS in metrics["verdict"]
    assert not (compare.OUTPUT / "plots/accuracy.svg").exists()
    lines.write_lines(Path("data/evaluations/dpo/0/per_problem.jsonl"), rows[1:])
    with pytest.raises(ValueError, match=r"rows of the test split.*found 40 and 39"):
        compare.main()


@pytest.mark.parametrize(("name", "num_rows", "counts"), [
    # a file, how many rows its last problem has, and the numbers that are reported
    ("evaluations/dpo/0/per_problem.jsonl", 1, "40 and 39"),
    ("evaluations/dpo/0/temperatures.jsonl", 3, "40 and 39"),
    ("samples/dpo/1/test_greedy.jsonl", 1, "40 and 39"),
    ("episodes/dpo-calculator/1/episodes.jsonl", 2, "12 and 11"),
])  # fmt: skip
def test_results_of_different_runs_are_refused(run, name, num_rows, counts):
    path = Path("data") / name
    rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(rows[:-num_rows]), encoding="utf-8")
    with pytest.raises(ValueError, match=f"{counts}.*different runs"):
        compare.main()


@pytest.mark.slow
def test_dvc_shows_the_headlines_and_plots(run):
    content = YAML(typ="safe").load(ROOT / "dvc.yaml")
    with Path("dvc.yaml").open("w") as file:
        YAML().dump({key: content[key] for key in ("metrics", "plots")}, file)

    def dvc(*words):
        command = [sys.executable, "-m", "dvc", *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert "ERROR" not in done.stderr
        return done.stdout

    init_dvc(Path())
    shutil.copytree(ROOT / ".dvc/plots", ".dvc/plots")
    table = dvc("metrics", "show").splitlines()
    assert len(table) == 1 + len(list(Path("data/headlines").iterdir())) <= 26
    assert max(map(len, table)) <= 120
    dvc("plots", "show")
    assert "Learning curves" in Path("dvc_plots/index.html").read_text()


# --- episodes
def played(seeds=SEEDS):
    plan = json.loads(Path("data/plan.json").read_text(encoding="utf-8"))
    return episode_comparison.read_episodes(Path("data"), plan, "sft", seeds, 0.95)


def success(policy):
    """[seed][start], from the files."""
    return np.array([
        [np.mean([row.success for row in group if row.error is None])
         for _, group in itertools.groupby(rows, key=lambda row: row.id)]
        for seed in SEEDS
        for rows in [lines.read_lines(
            Path(f"data/episodes/{policy}-calculator/{seed}/episodes.jsonl"), Episode)]
    ])  # fmt: skip


def write_problems(problems):
    rows = [StartProblem(id=f"s{at}", problem=str(problem)) for at, problem in enumerate(problems)]
    for path in Path("data/episodes").glob("*-calculator/*/starts.jsonl"):
        lines.write_lines(path, rows)


def test_success_is_that_of_the_episodes_and_starts_of_a_problem_are_a_cluster(run):
    found = episode_comparison.compare_episodes(played()[0])
    assert list(found["policies"]) == ["sft", "dpo", "grpo"]
    for policy, row in found["policies"].items():
        seeds = list(row["success"]["seeds"].values())
        assert seeds == pytest.approx(success(policy).mean(axis=1).tolist(), abs=1e-6)
        assert row["success"]["value"] == pytest.approx(success(policy).mean(), abs=1e-6)
        assert (row["failed"], row["endings"]["environment_error"]) == (3, round(3 / 72, 6))
    gains = found["gains"]["success"]
    gain = (success("dpo") - success("sft")).mean()
    assert gains["dpo"]["value"] == pytest.approx(gain, abs=1e-6)
    assert list(found["pairs"]) == ["grpo - dpo"]
    write_problems(np.arange(12) // 2)
    clustered = episode_comparison.compare_episodes(played()[0])
    assert (clustered["num_starts"], clustered["num_problems"]) == (12, 6)
    for name, row in clustered["gains"]["success"].items():
        assert row["value"] == gains[name]["value"]
        assert row["low"] != gains[name]["low"]
    write_problems([0] * 12)
    one = episode_comparison.compare_episodes(played()[0])
    assert (one["num_problems"], one["gains"]) == (1, found["gains"])
    alone = episode_comparison.compare_episodes(played([1])[0])
    assert alone["gains"]["success"]["grpo"]["significant"] is None
    assert episode_comparison.compare_episodes(played()[1])["gains"]["success"] == {}


def test_a_start_whose_episodes_all_failed_is_left_out_for_all(run):
    path = Path("data/episodes/dpo-calculator/1/episodes.jsonl")
    rows = list(lines.read_lines(path, Episode))
    failed = [replace(row, ending="environment_error", success=False) for row in rows]
    of_one = [new if new.id == "s4" else row for row, new in zip(rows, failed, strict=True)]
    lines.write_lines(path, of_one)
    found = episode_comparison.compare_episodes(played()[0])
    assert (found["num_starts"], found["left_out"]) == (11, 1)
    for shown in conversations.choose_conversations(played()[0]).values():
        assert not any(conversation.reason.startswith("s4:") for conversation in shown)
    expected = np.delete(success("sft"), 4, axis=1).mean()
    assert found["policies"]["sft"]["success"]["value"] == pytest.approx(expected, abs=1e-6)
    lines.write_lines(path, failed)
    with pytest.raises(ValueError, match="calculator"):
        episode_comparison.compare_episodes(played()[0])


def test_conversations_are_of_each_policy_and_the_baseline_and_at_random(run):
    shown = conversations.choose_conversations(played()[0])
    assert [len(group) for group in shown.values()][1:] == [3, transcripts.DRAWN]
    first = list(shown.values())[1][0]
    assert [(play.policy, play.success) for play in first.plays] == [("sft", False), ("grpo", True)]
    assert [line.heading for line in first.start] == ["tools", "system", "user"]
    assert len(first.plays[1].lines) == 3


def test_the_curve_of_a_seed_goes_to_its_own_end_and_the_mean_to_the_first(tmp_path, monkeypatch):
    name, title = next(iter(plots.SHOWN.items()))
    lengths, drawn = (400, 5, 170), []
    history = [[{name: float(step)} for step in range(length)] for length in lengths]
    curves = plots.select_curves(history)
    assert np.isfinite(curves[name]).sum(axis=1).tolist() == [*lengths]
    monkeypatch.setattr(Axes, "plot", lambda _, *line, **__: drawn.append(line))
    plots._draw_curves(tmp_path / "x.svg", [(title, curves[name], "red")], [0, 1, 2])
    assert [steps[-1] for steps, _ in drawn] == [398, 3, 168, 3], "the middle of the last three"
    assert all((steps == values).all() for steps, values in drawn)


# --- transcripts: of each problem, who is right with each seed: the baseline, x, y
FIRST = ["010", "010", "011", "010", "100", "110", "100", "000"]
SECOND = ["010", "010", "011", "000", "100", "111", "000", "100"]
PROMPTS = [studied_run.problem(f"p{at}") for at in range(8)]


def choose(*verdicts, names="bxy", seeds=(3, 4), answers=True):
    """The transcripts by each seed's rows of verdicts."""
    right = np.array([[[bit == "1" for bit in row] for row in seed] for seed in verdicts])
    completions = {
        name: [
            [studied_run.completion(prompt.id, 0, f"{name} {seed}", [1]) for prompt in PROMPTS]
            for seed in seeds
        ]
        for name in names
    }
    right = right.transpose(2, 0, 1)[: len(names)] if answers else None
    return transcripts.choose_transcripts(PROMPTS, completions, seeds, right)


def places(group):
    return [int(transcript.prompt.id[1:]) for transcript in group]


def test_transcripts_show_where_each_policy_and_the_baseline_differ_most(monkeypatch):
    gaps = np.array([[0.1, 0.9, -0.2, -0.9, 0.0, -0.5, 0.5, 0.4]])
    found = transcripts.choose_places(gaps, range(8))
    assert [at for at, _ in found] == [1, 6, 7, 3, 5], "the largest first, on both sides"
    monkeypatch.setattr(transcripts, "DRAWN", 0)
    x, y, random = choose(FIRST, SECOND).groups.values()
    assert (set(places(x[:3])), places(x[3:4]), random) == ({0, 1, 2}, [4], [])
    # Of the two that b alone has right with one seed, the one that is drawn, with that seed.
    seed = {6: 3, 7: 4}[places(x[4:])[0]]
    assert x[4].answers == [("b", f"b {seed}", True), ("x", f"x {seed}", False)]
    # What is left of 3, 5, 6 and 7, and b has right and y wrong: 5 with one seed, and 6 or 7.
    assert set(places(y)) == {5, 13 - places(x[4:])[0]}
    rows = choose(FIRST, SECOND, names="bx").disagreements
    assert [list(row.values()) for row in rows] == [["b, x", "4", "7", "2", "3"]]
    monkeypatch.setattr(transcripts, "DRAWN", 2)
    shown = [at for group in choose(FIRST, SECOND).groups.values() for at in places(group)]
    assert len(set(shown)) == len(shown)


def test_random_transcripts_are_drawn_by_the_seed_and_no_verdict():
    def draw(seed, verdicts=FIRST, **options):
        groups = choose(verdicts, seeds=(seed,), **options).groups
        return tuple(places(groups[transcripts.TITLE]))

    assert len({draw(seed) for seed in range(40)}) > 15
    assert draw(0, SECOND) == draw(0) == draw(0, answers=False)[: transcripts.DRAWN]
    alone = choose(FIRST, names="b", seeds=(0,))
    assert (list(alone.groups), alone.disagreements) == ([transcripts.TITLE], [])
    for shown in choose(FIRST, names="bx", answers=False).groups[transcripts.TITLE]:
        assert shown.answers == [("b", "b 3", None), ("x", "x 3", None)]
    text = transcripts.shorten("a" * 3000 + "b" * 3000)
    assert (text[:2000], text[-2000:], len(text) < 4050) == ("a" * 2000, "b" * 2000, True)


# --- cells, facts and costs
def test_cells_by_hand():
    difference = {"value": 0.0512, "low": -0.001, "high": 0.1, "seeds": {"0": 0.04, "1": 0.06},
        "p_holm": 0.0004, "detectable": 1.2}  # fmt: skip
    (row,) = tables.tabulate("difference", ["a - b"], [
        ("points", "points", {"a - b": difference}), ("none", "share", {}),
        *tables.list_seed_columns({"a - b": difference}),
    ])  # fmt: skip
    assert list(row.values()) == ["a − b", "+5.1 [-0.1, +10.0]", "", "4.0, 6.0", "<0.001", ""]
    assert tables.format_seeds(difference | {"seeds": {"0": 1}}) == ""
    assert markdown.format_points(difference) == "+5.1 [-0.1, +10.0]"
    assert markdown.format_points(difference | {"low": 0.01}) == "**+5.1 [+1.0, +10.0]**"
    small = {"value": -0.0004, "low": -0.00104, "high": -0.000012}
    assert markdown.format_points(small) == "**-0.04 [-0.1, -0.001]**"
    assert markdown.format_difference(0.0) == "+0.0"
    p_values = {0.050417: "0.0504", 0.0496: "0.0496", 0.7: "0.700", 1.0: "1.00", 0.00123: "0.00123"}
    assert {p: tables.format_p({"p_holm": p}) for p in p_values} == p_values
    rows = [{"policy": "sft", "method": "SFT", "steps": "2,324", "gain": "", "result": ""},
        {"policy": "dpo", "steps": "120 to 124", "gain": "+1.0", "result": "none"}]  # fmt: skip
    table = CaptionedTable("", rows)
    text = markdown.render_table(table.columns, table.cells, table.words).splitlines()
    assert text[1:] == ["| --- | --- | ---: | ---: | --- |", "| sft | SFT | 2,324 | – | – |",
        "| dpo | – | 120 to 124 | +1.0 | none |"]  # fmt: skip


SENTENCES = YAML(typ="safe").load(Path(__file__).with_name("verdict.yaml"))


@pytest.mark.parametrize("name", SENTENCES)
def test_a_sentence_of_the_verdict(name):
    function, arguments, expected = SENTENCES[name]
    text = getattr(verdict, function)(*arguments)
    assert (text if isinstance(text, str) else text[0]).endswith(expected)


SIZE = {"parameters": 1_234_000, "trained_parameters": 1_234_000}
CONFIG = {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 28}
GGUF = {"files": {"Tiny-1M.Q4_1.gguf": "b179c9523d0e6a0f98a3"}, "quantisation": "Q4_1"}
MODELS = [
    # section `model`, changes of its size, origin, and what the text must name
    ({"path": None}, {}, None, ["Qwen3", "1,234,000", "28", "scratch"]),
    ({"path": "Qwen/Qwen3-0.6B", "revision": "c1899de"}, {}, None, ["Qwen/Qwen3-0.6B", "c1899de"]),
    ({"path": "/home/ann/mine"}, {"trained_parameters": 34_000}, None, ["mine", "1,200,000"]),
    ({"path": "weights/Tiny-1M.Q4_1.gguf"}, {}, GGUF, ["Tiny-1M, ", "Q4_1", "b179c9523d0e)"]),
]  # fmt: skip


@pytest.mark.parametrize(("model", "size", "origin", "words"), MODELS)
def test_a_model_is_named_with_its_size_and_no_folder_of_the_user(model, size, origin, words):
    text = experiment.describe_model(model, config=CONFIG, size=SIZE | size, origin=origin)
    assert [word for word in [*words] if word not in text] == []
    assert "ann" not in text


def test_facts_of_a_run_by_hand(tmp_path):
    card = {"source": "data/raw/a.jsonl, /home/ann/b.jsonl", "quarantined": {"too long": 2},
            "counts": {"train": 1000, "dev": 3, "test": 4, "demonstrations": 99}}  # fmt: skip
    text = experiment.describe_data(card)
    assert re.findall(r"[\d,]*\d", text) == ["1,000", "3", "4", "99", "2"]
    assert ("ann" in text, "data/raw/a.jsonl" in text) == (False, True)
    pins = "# torch==1\nnumpy==2.3.5 ; python_version > '3'\ntorch==2.13.0\ntorchvision==9\n"
    found = experiment.describe_versions(pins, ["torch", "numpy", "vllm"])
    assert found.startswith("torch 2.13.0 and numpy 2.3.5,")
    row = {"train": "dpo", "preset": "ipo_sum", "from": "sft", "on": "pairs/judge", "num_steps": 8,
        "optim": {"learning_rate": 1e-4}}  # fmt: skip
    history = [[{"optim/learning_rate": rate} for rate in rates] for rates in ([0.3, 0.1], [0.2])]
    metrics = {0: {"trained_tokens": 1000}, 1: {"trained_tokens": 2000}}
    assert list(experiment.tabulate_method(row, history, metrics).values()) == [
        "DPO", "ipo_sum", "sft", "pairs/judge",
        'num_steps: 8, optim: {"learning_rate": 0.0001}', "1 to 2", "0.3", "1,500", "0",
    ]  # fmt: skip


def test_the_digest_of_a_folder_is_that_of_dvc(tmp_path):
    tree = Tree()
    for name in ("sft/0/a.jsonl", "sft/10/a.jsonl", "b", "ü"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
        digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
        tree.add(tuple(name.split("/")), None, HashInfo("md5", digest))
    tree.digest()
    assert experiment.digest_folder(tmp_path) == tree.hash_info.value


POLICY = report_inputs.MODEL | {"body": 800, "output": 150, "trained_body": 800,
    "trained_output": 150}  # fmt: skip
SCORER = POLICY | {"output": 0, "trained_body": 0, "trained_output": 0}
WORK = {"policy": POLICY | {"sampled": {"positions": 90, "outputs": 60},
    "trained": {"positions": 100, "outputs": 60}},
    "scorer": SCORER | {"read": {"positions": 100, "outputs": 0}}}  # fmt: skip


def test_costs_by_hand(run):
    found = stage_metrics.sum_cost({"generated_tokens": 60, "trained_tokens": 60, "work": WORK})
    forward = 2 * (800 * 90 + 150 * 60) + 2 * 800 * 100
    assert list(found.values()) == [60, 60, forward + 6 * (800 * 100 + 150 * 60)]
    sides = {"train": {"generated_tokens": 5}, "heldout": {"generated_tokens": 2}, "work": {}}
    assert list(stage_metrics.sum_cost(sides).values()) == [7, 0, 0]
    for seed, tokens in enumerate((10, 20, 60)):
        report_inputs.write_json(f"pools/new/{seed}/metrics.json", {"generated_tokens": tokens})
    found = stage_metrics.read_row_cost(Path("data/pools/new"), SEEDS)
    assert list(found.values()) == [30.0, 0.0, 0.0]
    assert not any(stage_metrics.read_row_cost(Path("data/none"), SEEDS).values())
    # A child of dpo and a user of its pairs have both in full; the baseline's rows are of no other.
    second = {"from": "dpo", "on": "pairs/verifier"}
    plan = report_inputs.PLAN | {"policies": report_inputs.PLAN["policies"] | {"second": second}}
    rows = [f"{table}/{name}" for table, names in plan.items() for name in names]
    costs = {row: dict.fromkeys(stage_metrics.COSTS, 1.0) for row in rows}
    found = stage_metrics.sum_policy_costs(plan, "sft", costs)
    assert {name: (cost["rows"], cost["flops"]) for name, cost in found.items()} == {
        "sft": (["policies/sft"], 1), "grpo": (["rewards/rule", "policies/grpo"], 2),
        "dpo": (["pools/sft", "pairs/verifier", "policies/dpo"], 3),
        "second": (["pools/sft", "pairs/verifier", "policies/dpo", "policies/second"], 4),
    }  # fmt: skip


def test_quality_is_the_mean_over_all_seeds_or_is_not_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, share in enumerate((0.5, 0.75)):
        judged = {"train": {"pairs": 10, "agreement": {"averaged": {"value": share, "low": 0.0}}}}
        report_inputs.write_json(f"pairs/judge/{seed}/metrics.json", judged)
    report_inputs.write_json("pairs/half/0/metrics.json", {"train": {"pairs": 1}})
    plan = {"pairs": {"judge": {}, "half": {}}, "steps": {}, "rewards": {"rule": {}}}
    found = stage_metrics.read_quality(tmp_path / "data", plan, [0, 1])
    assert {table: [*rows] for table, rows in found.items()} == {"pairs": ["judge"]}
    values = {name: row["value"] for name, row in found["pairs"]["judge"].items()}
    assert values == {"pairs": 10.0, "agree with the answer checker": 0.625}


def test_lines_of_a_plot_differ_without_colour(written):
    pictures = {path.name: path.read_text()
        for path in (written / compare.OUTPUT / "plots").glob("*.svg")}  # fmt: skip
    assert len(pictures) == 7
    for name, svg in pictures.items():
        assert plots.DARK in svg, name
        assert not re.search(r' d="[^"]*\.\d{3}', svg), name
    for name, number in (("accuracy_by_n.svg", 6), ("training-dpo.svg", len(SEEDS))):
        shapes = dict(re.findall(r'<path id="(m\w+)" d="([^"]+)"', pictures[name]))
        drawn = re.findall(
            r'<g id="line2d_\d+">\s*<path d="[^"]+"[^>]*style="fill: none;([^"]*)"/>\s*<defs>\s*'
            r'<path id="(m\w+)"', pictures[name])  # fmt: skip
        marks = {(*re.findall("stroke-dasharray: ([^;]+)", style), shapes[mark]) for style,
            mark in drawn}  # fmt: skip
        assert len(marks) == number


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_run()
        GOLDEN.write_text(strip(read(Path(), "report.md")), encoding="utf-8")


@pytest.mark.parametrize(("text", "expected"), [
    ("a\tb\nc é 日本語 \u0645\u0631\u062d\u0628\u0627 👩\u200d👩", None),
    ("\x1b[2J\x07\x9b31m \r\x00\b\x7f \u202e\u2066\u200f\u061c",
     "\\x1b[2J\\x07\\x9b31m \\r\\x00\\x08\\x7f \\u202e\\u2066\\u200f\\u061c"),
])  # fmt: skip
def test_what_would_be_invisible_is_escaped_and_nothing_else(text, expected):
    assert page.escape_invisible(text) == (text if expected is None else expected)
