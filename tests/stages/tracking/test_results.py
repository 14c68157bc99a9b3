"""What is taken of a finished pipeline: entries of dvc.lock, headlines, the best policy, files,
completions and descriptions."""

import json
import logging
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import report_inputs
from made_pipeline import MadePipeline, make_pipeline, write

from stages import track
from stages.records import lines
from stages.tracking import artifacts, completions, descriptions, headlines, lockfile, store, view
from stages.tracking.lockfile import Artifact, Entry


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_entry(stage: str, *outs: Path | str, command: str = "") -> Entry:
    return Entry(
        stage=stage, description="", command=command, params={}, deps=[],
        outs=[Artifact(path=Path(path), digest="0") for path in outs],
        input_key="0", lock_hash="0", result_hash="0",
    )  # fmt: skip


# Entries of dvc.lock and their run records.


def read_entry(stage: str, path: Path = Path("dvc.lock")) -> Entry:
    (entry,) = [entry for entry in lockfile.read_entries(path) if entry.stage == stage]
    return entry


def test_only_stages_that_were_made_and_still_exist_are_read() -> None:
    assert lockfile.read_entries() == []
    made = make_pipeline()
    made.add("train@gone")
    made.add("track")
    names = [entry.stage for entry in lockfile.read_entries()]
    assert names == ["train@sft", "train@dpo", "evaluate@sft", "evaluate@dpo", "compare"]
    entry = read_entry("train@sft")
    assert (entry.kind, entry.description) == ("train", "Trains")
    assert entry.journals == Path("data/journals/train/sft")
    # a study has its file in its name, and its own journal
    study = {"cmd": "x", "wdir": "..", "desc": "again", "outs": ["data/studies/rescore/dpo"]}
    definition = {"stages": {"rescore": {"foreach": ["dpo"], "do": study}}}
    write(Path("studies/dvc.yaml"), definition)
    out = {"path": "data/studies/rescore/dpo/journal", "md5": "md5-0"}
    lock = {"schema": "2.0", "stages": {"rescore@dpo": {"cmd": "x", "outs": [out]}}}
    write(lockfile.STUDIES, lock)
    entry = read_entry("studies/dvc.yaml:rescore@dpo", lockfile.STUDIES)
    assert (entry.kind, entry.description) == ("rescore", "again")
    assert entry.journals == Path(out["path"])
    assert [entry.stage for entry in lockfile.read_entries()] == names


def test_another_execution_with_the_same_outputs_is_the_same_result_and_the_last_record() -> None:
    made = MadePipeline()
    entries = []
    for number in (1, 2):
        made.add("train@sft", execution=str(number), outs={"data/a": "0"}, ended=9 - number)
        entries.append(read_entry("train@sft"))
    first, second = entries
    assert first.result_hash == second.result_hash, "journals hold the digest of inputs"
    assert first.lock_hash != second.lock_hash
    record = lockfile.read_record(second)
    assert record is not None
    assert record["execution_id"] == "1train@sft", "it ended last, however it came here"
    made.add("train@sft", execution="3", outs={"data/a": "1"})
    assert read_entry("train@sft").result_hash != first.result_hash
    made.remove_records()  # as from elsewhere
    entry = read_entry("train@sft")
    record = lockfile.read_record(entry)
    assert record is not None
    assert (record["seconds"], record["host"], record["input_key"]) == (None, None, entry.input_key)


def test_journals_of_other_inputs_or_none_are_left_out_with_a_warning(caplog) -> None:
    make_pipeline()
    entry = read_entry("train@sft")
    path = Path("data/journals/train/sft/key.json")
    with caplog.at_level(logging.WARNING):
        write(path, {"input_key": "0"})
        assert lockfile.read_record(entry) is None
        path.unlink()
        assert lockfile.read_record(entry) is None
    assert [record.args[0] for record in caplog.records] == ["train@sft"] * 2
    assert lockfile.read_record(replace(entry, outs=[])) is None


COMMAND = "check\npython -m stages train_sft a --train sft --preset sft --from base --on prompts"
SECTION = {"seeds": [0, 1], "sft": {"num_epochs": 2, "optim": {"learning_rate": 0.5, "decay": 0}}}


@pytest.mark.parametrize(
    ("preset", "words", "used"),
    [
        # preset, the row's words, and the parameters that are not the section's
        ({"num_epochs": None, "learn": {"x": True}}, "", {"sft.learn.x": True}),
        ({"num_epochs": 5}, "", {"sft.num_epochs": 5}),
        ({"num_epochs": 5}, " --num_epochs 3", {"sft.num_epochs": 5}),
        ({"num_epochs": None}, " --num_epochs 3", {"sft.num_epochs": 3}),
        ({}, " --optim.learning_rate 3e-3", {"sft.optim.learning_rate": 0.003}),
    ],
)
def test_parameters_are_those_that_the_stage_run_used(preset, words, used) -> None:
    write(Path("params.yaml"), "seeds: [0]\n")
    content = {"params.yaml": SECTION, "stages/presets.yaml": {"sft": preset}}
    entry = lockfile._parse_entry("train@a", "", {"cmd": COMMAND + words, "params": content})
    assert entry.params == {
        "seeds": [0, 1], "sft.num_epochs": 2, "sft.optim.learning_rate": 0.5, "sft.optim.decay": 0,
    } | used  # fmt: skip
    assert entry.command.startswith("python -m stages")


def test_a_parameter_that_rows_replace_has_all_its_values_in_the_manifest() -> None:
    entries = [replace(make_entry("train@a"), params={"sft.num_epochs": number, "seeds": [0]})
               for number in (2, 5, 2)]  # fmt: skip
    assert view.join_params(entries) == {"sft.num_epochs": "2, 5", "seeds": [0]}


def test_the_manifest_names_stages_with_journals_and_does_not_depend_on_where_they_ran() -> None:
    made = make_pipeline()
    entries = lockfile.read_entries()
    plan = replace(entries[0], stage="plan", outs=[], result_hash="of the rows")
    track.write_manifest([*entries, plan])
    before = json.loads(track.MANIFEST.read_text())
    assert before == {entry.stage: entry.result_hash for entry in entries}
    made.remove_records()
    track.write_manifest(lockfile.read_entries())
    assert json.loads(track.MANIFEST.read_text()) == before


def test_the_last_text_of_a_pipeline_is_its_verdict_and_the_path_of_the_report() -> None:
    write(Path("data/report/verdict.txt"), "First.\n")
    write(Path("data/report/report.html"), "")
    records = {"train@a": {"seconds": 10.0}, "train@b": {"seconds": 2.4}, "c": {"seconds": None}}
    text = track.describe_runs(records, Path("data/report"))
    assert [line.split() for line in text.splitlines()[1:3]] == [
        ["train", "12", "a", "10,", "b", "2"], ["all", "12"],
    ]  # fmt: skip
    assert text.endswith("\n\nFirst.\n\nThe report: data/report/report.html")


# Headline numbers and the best policy.


def write_metrics(stage: str, *seeds: dict, command: str = "") -> Entry:
    folder = Path("made") / stage.replace("@", "/")
    for seed, metrics in enumerate(seeds):
        write(folder / f"{seed}/metrics.json", metrics)
    return make_entry(stage, folder, command=command)


def test_a_number_is_the_mean_over_seeds_of_the_first_place_and_the_last_step() -> None:
    balanced = {"heldout": {"labels": {"balanced_accuracy": {"value": 0.5, "low": 0.1}}}}
    other = {"heldout": {"labels": {"balanced_accuracy": 0.75}}}
    entry = write_metrics("reward@outcome", balanced, other)
    assert headlines.average_headlines(entry) == {"heldout_accuracy": 0.625}
    assert headlines.average_headlines(write_metrics("prepare_data")) == {}
    right = {"mean_accuracy": 0.5, "dev_accuracy": 0.5}
    entry = write_metrics("evaluate@cut", right, {"cut/dev": 0.5, "cut/test": 0.9}, right)
    assert headlines.average_headlines(entry) == {}, "the report does not compare it either"
    entry = write_metrics("train@grpo", {"trained_tokens": 6}, {"trained_tokens": 8})
    for seed, reward in enumerate((0.5, 1.0)):
        rows = [{"index": i, "metrics": {"reward/mean": reward * i}} for i in range(2)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        write(Path(f"made/train/grpo/{seed}/history.jsonl"), text)
    assert headlines.average_headlines(entry) == {"trained_tokens": 7.0, "reward": 0.75}


CONTROL = "python -m stages train_grpo coin --control no_effect"


@pytest.mark.parametrize(
    ("dev", "policy", "seed"),
    [
        # accuracies on dev problems of the seeds of each policy
        ({"a": (0.5, 0.5), "c": (0.5, 1.0), "b": (0.75, 0.75)}, "c", "1"),
        ({"a": (0.5, 0.2), "c": (0.1, 0.6), "last": (0.3, 0.4)}, "last", "1"),
        ({"a": (0.5, 0.5), "b": (0.1, 0.8)}, "a", "0"),
        ({"a": (0.5,), "coin": (1.0,)}, "a", "0"),
        ({"a": (0.5, 0.5), "b": (1.0, None)}, "a", "0"),
    ],
    ids=[
        "of equal means the first row",
        "the baseline before it",
        "mean, not its best seed",
        "no control",
        "a seed was cut",
    ],
)
def test_the_best_policy_is_that_on_dev_problems(dev, policy, seed) -> None:
    write(Path("params.yaml"), "baseline: last\n")
    entries = [write_metrics("train@coin", {}, command=CONTROL)]
    for name, accuracies in dev.items():
        # on test problems the order is the opposite
        rows = [{"cut/test": 0.9} if a is None else {"dev_accuracy": a, "mean_accuracy": 1 - a}
                for a in accuracies]  # fmt: skip
        entries.append(write_metrics(f"evaluate@{name}", *rows))
    assert headlines.choose_best(entries) == (policy, seed)
    assert headlines.choose_best(entries[:1]) is None


def test_numbers_of_the_report_are_named_by_environment_and_policy() -> None:
    number = {"value": 0.25}
    game = {"policies": {"sft": {"success": number}}, "gains": {"success": {"grpo": number}}}
    content = {
        "policies": {"sft": {"mean_accuracy": number}, "play": {}},
        "gains": {"mean_accuracy": {"dpo": number}},
        "controls": {"differences": {"no_effect": {"coin": number}}}, "episodes": {"game": game},
    }  # fmt: skip
    write(Path("metrics.json"), content)
    names = ("accuracy/sft", "gain/dpo", "control/coin", "success/game/sft")
    expected = dict.fromkeys((*names, "success_gain/game/grpo"), 0.25)
    assert headlines.read_report_numbers(Path("metrics.json")) == expected
    assert headlines.read_report_numbers(Path("absent.json")) == {}


# Files, models and completions.


def test_small_files_are_copied_and_none_of_a_model() -> None:
    reward, journals = Path("data/rewards/ensemble"), Path("data/journals/reward/ensemble")
    for seed in (0, 1):
        write(reward / f"{seed}/metrics.json", "{}")
        for member in (0, 1):
            for name in ("config.json", "deep/tokenizer.json", "model.safetensors"):
                write(reward / f"{seed}/model/{member}/{name}", "{}")
    write(reward / "reward.json", "{}")
    write(reward / "large.json", " " * (artifacts.MAX_BYTES + 1))
    write(reward / "scores.jsonl", "{}")
    write(journals / "key.json", "{}")
    entry = make_entry("reward@ensemble", reward, journals)
    assert {path.as_posix(): place for path, place in artifacts.find_small_files(entry)} == {
        f"{reward}/reward.json": None,
        f"{reward}/0/metrics.json": "0",
        f"{reward}/1/metrics.json": "1",
        f"{journals}/key.json": "run",
    }
    assert list(artifacts.find_policies(entry)) == [], "reward models are no policies to deploy"
    for place in ("model/0", "model/1", "training/0/checkpoints/step-0008", "model/best"):
        write(Path(place) / "config.json", "{}")
    policies = artifacts.find_policies(make_entry("train@a", "model", "training"))
    assert [path.as_posix() for path in policies] == ["model/0", "model/1"]


def write_rollouts(steps, *, torn: str = "") -> Path:
    rows = [
        {"completion": f"{step}-{index}", "completion_ids": [1, 2], "id": "a", "step": step}
        for step in steps
        for index in range(20)
    ]
    path = Path("rollouts.jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + torn)
    return path


@pytest.mark.parametrize(("steps", "shown"), [
    (0, []), (1, range(20)), (2, range(40)), (3, [*range(25), *range(35, 60)]),
    (300, [*range(25), *range(5975, 6000)]),
])  # fmt: skip
@pytest.mark.parametrize("torn", ["", '{"completion": "x", "id": "a", "step": 999}'])
def test_the_first_and_the_last_rows_of_rollouts(steps, shown, torn, monkeypatch) -> None:
    monkeypatch.setattr(completions, "MAX_TAIL_BYTES", 4000)
    rows = completions.read_rollouts(write_rollouts(range(steps), torn=torn))
    expected = [f"{row // 20}-{row % 20}" for row in shown]
    assert [row["completion"] for row in rows] == expected


def test_rollouts_of_an_environment_are_conversations() -> None:
    completions.PROMPTS.mkdir(parents=True)
    episode = asdict(report_inputs.episode("s0", 0, is_right=True))
    row = {"step": 0, "id": "s0", "index": 0, "completion": "raw", "completion_ids": [1],
           "reward": 1.0, "episode": episode}  # fmt: skip
    table = completions.to_table([row])
    shown = dict(zip(table["columns"], *table["data"], strict=True))
    assert shown.pop("conversation").startswith("[system]\n")
    assert shown == {"step": 0, "completion": "raw", "reward": 1.0, "success": True, "id": "s0",
        "index": 0, "turns": 2, "tool_calls": 1, "ending": "done"}  # fmt: skip
    assert completions.to_table([episode])["data"][0][1:4] == [1.0, True, "s0"]


def test_episodes_that_were_played_are_conversations() -> None:
    episodes = [report_inputs.episode(f"s{at}", 0, is_right=at == 0) for at in range(2)]
    lines.write_lines(Path("played/0/episodes.jsonl"), episodes)
    ((name, table),) = completions.read_tables(make_entry("play@a", "played"))
    assert (name, [row[2] for row in table["data"]]) == ("episodes", [True, False])


def test_tables_are_the_first_rows_of_the_first_seeds_known_files_with_their_problems() -> None:
    for split, name in (("dev", "b"), ("train", "a")):
        row = {"id": name, "question": f"{name}?", "answer": "4", "prompt": f"Q: {name}?"}
        write(completions.PROMPTS / f"{split}.jsonl", json.dumps(row) + "\n")
    rows = [{"id": name, "completion": "4", "completion_ids": [1]} for name in ("a", "of no split")]
    for seed in (0, 1):
        for name in ("test.jsonl", "unknown.jsonl"):
            text = "".join(json.dumps(row | {"reward": seed}) + "\n" for row in rows)
            write(Path(f"samples/{seed}/{name}"), text * 30)
    write(Path("samples/0/train.jsonl"), "")
    ((name, table),) = completions.read_tables(make_entry("sample@a", "samples"))
    assert (name, len(table["data"])) == ("test", 50)
    assert table["columns"] == ["question", "completion", "reward", "answer", "id"]
    assert table["data"][:2] == [["a?", "4", 0, "4", "a"], [None, "4", 0, None, "of no split"]]


# What a person reads.


def test_no_text_is_markup() -> None:
    for text, markdown in (
        ("grpo (+29.6 points), 64.2 %", r"grpo \(+29.6 points\), 64.2 %"),
        ("![x](http://a)", r"\!\[x\]\(http://a\)"),
        ("<img src=x> a_b | c", r"&lt;img src=x&gt; a\_b \| c"),
    ):
        assert descriptions.escape(text) == markdown
        assert descriptions.describe_manifest(text, {}, {}, "1") == markdown


def test_a_policy_has_its_accuracy_its_gain_and_links_to_its_runs() -> None:
    numbers = {"accuracy/a": 0.25, "gain/b": 1.0, "accuracy/c": 0.5, "gain/c": 0.25}
    lines = descriptions.describe_manifest("", numbers, {"train@c": "r"}, "1").splitlines()
    assert lines[-2] == "| a | 25.0 |  |  |"
    assert lines[-1].startswith("| c | 50.0 | +25.0 | [training](#/experiments/1/runs/r?")


def test_an_input_is_a_link_to_the_run_that_made_it_or_the_folder_around_it() -> None:
    source = make_entry("train@sft", "data/policies/sft/model", "data/pools")
    paths = ("data/policies/sft/model", "data/pools/sft", "data/prompts")
    deps = [Artifact(path=Path(path), digest="0") for path in paths]
    entry = replace(make_entry("train@dpo"), deps=deps)
    note = descriptions.describe_stage(entry, [source], {"train@sft": "r", "train@dpo": "s"}, "1")
    link = "(#/experiments/1/runs/r?workflowType=machine_learning)"
    assert f"Inputs: [policies/sft/model]{link}, [pools/sft]{link}\n" in note


def test_the_address_of_a_page_has_no_password(monkeypatch) -> None:
    for uri, page in (
        ("http://me:sekret@host:5000/base/", "http://host:5000/base/#/a"),
        ("https://host", "https://host/#/a"),
        ("", "http://127.0.0.1:5000/#/a"),
        ("postgresql://me:sekret@host/db", "http://127.0.0.1:5000/#/a"),
    ):
        monkeypatch.setenv(store.URI, uri)
        first, *rest = store.find_page("#/a").splitlines()
        assert first == page
        assert "sekret" not in "".join(rest)


@pytest.mark.parametrize("password", ["se#cret", "se/cret", "se?cret"])
def test_an_address_that_cannot_be_read_is_an_outage_without_its_password(password) -> None:
    with pytest.raises(OSError, match="port") as caught:
        store.check_server(f"postgresql://me:{password}@host/db")
    assert isinstance(caught.value, store.OUTAGES)
    assert "se" not in str(caught.value)
    assert caught.value.__suppress_context__
