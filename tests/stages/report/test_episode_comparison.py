"""Episodes of policies in environments, in the report."""

import contextlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import report_inputs
from markdown_it import MarkdownIt

from stages import compare
from stages.records import lines
from stages.records.episodes import Episode, StartProblem
from stages.report import episode_comparison
from stages.report.comparison import test_differences as differences_of
from stages.report.conversations import choose_conversations
from stages.report.estimates import Results

RATES = {"dpo": 0.5, "sft": 0.1, "grpo": 0.9}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with episodes in two environments; the baseline has played in one."""
    path = tmp_path_factory.mktemp("made")
    with contextlib.chdir(path):
        report_inputs.write()
        report_inputs.write_episodes("calculator", RATES)
        report_inputs.write_episodes("maze", {"dpo": 0.5})
        compare.main()
    return path


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(made, tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")


def read_report(name: str) -> str:
    return (compare.OUTPUT / name).read_text(encoding="utf-8")


def read_played(seeds: list[int] = report_inputs.SEEDS) -> list[Any]:
    plan = json.loads(Path("data/plan.json").read_text(encoding="utf-8"))
    return episode_comparison.read_episodes(Path("data"), plan, "sft", seeds, 0.95)


def compare_by_hand() -> tuple[dict[str, np.ndarray], Results]:
    """Success by policy, seed and start, from the files."""
    tables = {}
    for policy in RATES:
        of_seeds = []
        for seed in report_inputs.SEEDS:
            path = Path(f"data/episodes/{policy}-calculator/{seed}/episodes.jsonl")
            rows = list(lines.read_lines(path, Episode))
            of_start = [
                [row.success for row in rows if row.id == f"s{start}" and row.error is None]
                for start in range(12)
            ]
            of_seeds.append([sum(group) / len(group) for group in of_start])
        tables[policy] = np.array(of_seeds)
    results = Results(
        seeds=report_inputs.SEEDS, ids=[], num_samples=2, ns=[], tables={}, halves={}, metrics={},
        confidence=0.95,
    )  # fmt: skip
    return tables, results


@pytest.mark.usefixtures("folder")
def test_success_and_its_gain_are_those_of_the_episodes_by_seed_and_start() -> None:
    numbers = json.loads(read_report("metrics.json"))["episodes"]["calculator"]
    tables, results = compare_by_hand()
    assert list(numbers["policies"]) == ["sft", "dpo", "grpo"]
    for policy, table in tables.items():
        success = numbers["policies"][policy]["success"]
        assert success["value"] == pytest.approx(table.mean(), abs=1e-6)
        seeds = list(success["seeds"].values())
        assert seeds == pytest.approx(table.mean(axis=1).tolist(), abs=1e-6)
    family = {policy: tables[policy] - tables["sft"] for policy in ("dpo", "grpo")}
    assert numbers["gains"]["success"] == differences_of(family, results)
    pair = differences_of({"grpo - dpo": tables["grpo"] - tables["dpo"]}, results)
    assert numbers["pairs"] == pair
    assert numbers["policies"]["grpo"]["failed"] == 3
    endings = numbers["policies"]["grpo"]["endings"]
    assert endings == {"done": round(69 / 72, 6), "environment_error": round(3 / 72, 6)}


@pytest.mark.usefixtures("folder")
def test_the_page_and_the_markdown_have_the_table_the_verdict_and_conversations() -> None:
    expected = "In calculator, over 3 seeds and 12 test starts, sft succeeds in"
    assert expected in read_report("verdict.txt")
    for name in ("report.md", "report.html"):
        text = read_report(name)
        for part in ("Episodes in calculator: 2 from each of 12 test starts", expected,
                     "done 95.8 %, environment error 4.2 %", "assistant, turn 2, reward 1",
                     "tool calculator", "Where grpo and sft differ most, calculator"):  # fmt: skip
            assert part in text, part
        assert "In maze there is no verdict, because the baseline has played no episodes" in text
    headlines = json.loads(Path("data/headlines/success_calculator.json").read_text())
    assert list(headlines) == ["sft", "dpo", "grpo"]


@pytest.mark.usefixtures("folder")
def test_what_a_model_wrote_stays_text() -> None:
    html = read_report("report.html")
    assert len(re.findall("<script", html)) == 1
    assert "&lt;script&gt;document.title" in html
    markdown = read_report("report.md")
    assert report_inputs.ATTACK.splitlines()[0].replace('"', '\\"') in markdown
    kinds = [
        (token.type, child.type)
        for token in MarkdownIt("commonmark").parse(markdown)
        for child in token.children or [token]
    ]
    assert not any("html" in outer + inner for outer, inner in kinds)
    assert sum(inner == "image" for _, inner in kinds) == markdown.count("](plots/")


@pytest.mark.usefixtures("folder")
def test_a_fence_is_longer_than_any_in_the_conversation() -> None:
    path = Path("data/episodes/sft-calculator/0/episodes.jsonl")
    rows = list(lines.read_lines(path, Episode))
    attack = "````\n# out\n<b>"
    answered = [
        replace(row, messages=[*row.messages[:-1], {"role": "assistant", "content": attack}])
        for row in rows
    ]
    lines.write_lines(path, answered)
    compare.main()
    tokens = MarkdownIt("commonmark").parse(read_report("report.md"))
    assert any(attack in token.content for token in tokens if token.type == "fence")
    assert not any(token.type == "html_block" for token in tokens)


@pytest.mark.usefixtures("folder")
def test_without_such_rows_nothing_is_written_of_episodes() -> None:
    plan = json.loads(Path("data/plan.json").read_text(encoding="utf-8"))
    written = []
    for tables in ({}, {"episodes": {}, "environments": {}}):
        rest = {name: rows for name, rows in plan.items() if name[:2] not in ("ep", "en")}
        report_inputs.write_json("plan.json", {**rest, **tables})
        compare.main()
        files = [*compare.OUTPUT.rglob("*.*"), *Path("data/headlines").iterdir()]
        written.append({str(path): path.read_bytes() for path in files})
    assert written[0] == written[1]
    assert not any(re.search(b"pisodes|speaker", content) for content in written[0].values())


@pytest.mark.usefixtures("folder")
def test_a_start_of_which_all_episodes_failed_is_left_out_for_all() -> None:
    path = Path("data/episodes/dpo-calculator/1/episodes.jsonl")
    failed = {"ending": "environment_error", "success": False}
    rows = [
        replace(row, **failed) if row.id == "s4" else row for row in lines.read_lines(path, Episode)
    ]
    lines.write_lines(path, rows)
    numbers = episode_comparison.compare_episodes(read_played()[0])
    assert (numbers["num_starts"], numbers["left_out"]) == (11, 1)
    tables, _ = compare_by_hand()
    expected = np.delete(tables["sft"], 4, axis=1).mean()
    assert numbers["policies"]["sft"]["success"]["value"] == pytest.approx(expected, abs=1e-6)
    lines.write_lines(path, [replace(row, **failed) for row in rows])
    with pytest.raises(ValueError, match="play them again"):
        episode_comparison.compare_episodes(read_played()[0])


def write_problems(problems: list[str]) -> None:
    rows = [StartProblem(id=f"s{at}", problem=problem) for at, problem in enumerate(problems)]
    for path in Path("data/episodes").glob("*-calculator/*/starts.jsonl"):
        lines.write_lines(path, rows)


@pytest.mark.usefixtures("folder")
def test_starts_with_the_same_problem_are_one_cluster_with_the_mean_that_they_had() -> None:
    expected = episode_comparison.compare_episodes(read_played()[0])
    write_problems([str(at // 2) for at in range(12)])
    compare.main()
    numbers = json.loads(read_report("metrics.json"))["episodes"]["calculator"]
    assert (numbers["num_starts"], numbers["num_problems"]) == (12, 6)
    assert "These starts pose 6 different problems" in read_report("report.md")
    tables, results = compare_by_hand()
    results = replace(results, clusters=np.arange(12) // 2)
    family = {policy: tables[policy] - tables["sft"] for policy in ("dpo", "grpo")}
    assert numbers["gains"]["success"] == differences_of(family, results)
    for policy, difference in numbers["gains"]["success"].items():
        before = expected["gains"]["success"][policy]
        assert difference["value"] == before["value"]
        assert difference["low"] != before["low"]
    write_problems(["0"] * 12)
    numbers = episode_comparison.compare_episodes(read_played()[0])
    assert numbers["num_problems"] == 1
    assert numbers["gains"] == expected["gains"]


@pytest.mark.usefixtures("folder")
def test_one_seed_has_no_verdict() -> None:
    numbers = episode_comparison.compare_episodes(read_played([1])[0])
    assert "no verdict" in numbers["verdict"]
    assert numbers["gains"]["success"]["grpo"]["significant"] is None


@pytest.mark.usefixtures("folder")
def test_other_starts_of_one_seed_are_refused() -> None:
    path = Path("data/episodes/dpo-calculator/1/episodes.jsonl")
    lines.write_lines(path, list(lines.read_lines(path, Episode))[2:])
    with pytest.raises(ValueError, match="rerun"):
        read_played()


@pytest.mark.usefixtures("folder")
def test_conversations_are_of_the_policies_that_differ_most_and_at_random() -> None:
    shown = choose_conversations(read_played()[0])
    assert list(shown) == ["Where grpo and sft differ most", "Drawn at random"]
    first = shown["Where grpo and sft differ most"][0]
    assert [(play.policy, play.success) for play in first.plays] == [("sft", False), ("grpo", True)]
    assert [line.heading for line in first.start] == ["tools", "system", "user"]
    turns = ["assistant, turn 1, reward 0", "tool calculator", "assistant, turn 2, reward 1"]
    assert [line.heading for line in first.plays[1].lines] == turns
    assert first.plays[1].outcome == "reward 1, 2 turns, 1 tool call, ended by the environment"
