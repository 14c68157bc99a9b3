"""Configurations: what is read of params.yaml and presets.yaml, the words of a row's command, what
`plan` writes and deletes, and every number's bounds. What is refused: tests/bad_inputs.
"""

import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pydantic
import pytest
from ruamel.yaml import YAML
from stage_inputs import ROOT, read_files, write_raw
from toy_repo import init_dvc

from stages import auto, plan, rows, stage, tables
from stages.config import PARAMS_PATH, PRESETS_PATH, Params, merge, read_yaml
from stages.params import FACTS_PATH, LOCK_PATH, load_config, measured_facts, read_facts
from stages.rows import TABLES
from stages.seeding import derive_seed

# --- files of keys


class Train(Params):
    rate: float
    steps: int


class Preset(Params):
    beta: float


class Config(Params):
    seed: int
    train: Train


class PresetConfig(Params):
    preset: Preset


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    PRESETS_PATH.parent.mkdir()
    PRESETS_PATH.write_text("first: &first {beta: 0.5}\nsecond: {<<: *first}\n")
    PARAMS_PATH.write_text("seed: 3\nother: {a: b}\ntrain:\n  rate: 1e-4\n  steps: 10\n")
    return tmp_path


def test_a_config_has_its_own_keys_and_the_preset_with_what_it_inherits(folder):
    config = load_config(Config, overrides={"train": {"steps": 4}})
    assert (config.seed, config.train) == (3, Train(rate=1e-4, steps=4))
    for name in ("first", "second"):
        assert load_config(PresetConfig, name).preset == Preset(beta=0.5)
    with pytest.raises(ValueError, match=r"'third'.*first.*second"):
        load_config(PresetConfig, "third")
    with pytest.raises(pydantic.ValidationError):
        config.seed = 4
    shared = {"a": {"b": {"c": 1, "d": 2}}}  # by all rows
    assert merge(shared, {"a": {"b": {"c": 5}}}) == {"a": {"b": {"c": 5, "d": 2}}}
    assert shared == {"a": {"b": {"c": 1, "d": 2}}}
    PARAMS_PATH.write_text("train: {rate: fast, stepz: 1}")
    with pytest.raises(ValueError, match=r"(?s)(?=.*seed: )(?=.*rate: .*'fast').*stepz: .*'steps'"):
        load_config(Config)


class Compute(Params):
    gradient_checkpointing: bool | str


class Trained(Params):
    compute: Compute


@pytest.mark.parametrize(("setting", "gpus", "answer", "expected"), [
    (True, ["0"], "exit 1", True), ("auto", [], "exit 1", False),
    ("auto", ["0"], "echo a table; echo False", False), ("auto", ["0"], "echo True", True),
    ("auto", ["0"], "echo 'no data' >&2; exit 1", True),  # no forecast: as if memory were short
])  # fmt: skip
def test_a_stage_on_a_gpu_asks_the_doctor_whether_to_recompute(
    setting, gpus, answer, expected, folder, monkeypatch
):
    doctor = folder / "python"
    doctor.write_text(f'#!/bin/sh\n[ "$*" = "-m stages.doctor --recompute train@a" ] && {answer}\n')
    doctor.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(doctor))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(gpus))
    config = Trained(compute=Compute(gradient_checkpointing=setting))
    settled = stage.settle_recomputation(config, "train@a")
    assert settled.compute.gradient_checkpointing is expected


MODEL = {"path": "a/model", "thinking": None}
CONTENT = {"model": MODEL, "data": {"source": {"kind": "gsm8k"}}, "data_seed": 0, "seeds": [0]}


def test_facts_are_of_the_model_and_data_that_dvc_lock_names(folder):
    FACTS_PATH.parent.mkdir(parents=True)
    FACTS_PATH.write_text(json.dumps(asdict(auto.UNMEASURED)))
    assert measured_facts(CONTENT) is None  # nothing says whose they are
    read = {name: CONTENT[name] for name in ("model", "data", "data_seed")}
    lock = {"stages": {"prepare_data": {"params": {"params.yaml": read}}}}
    LOCK_PATH.write_text(json.dumps(lock))
    for change in ({}, {"seeds": [1]}):
        assert measured_facts(CONTENT | change) == auto.UNMEASURED
    for change in ({"data_seed": 1}, {"model": MODEL | {"thinking": True}},
                   {"data": {"source": {"kind": "hub"}}}):  # fmt: skip
        assert measured_facts(CONTENT | change) is None
    LOCK_PATH.write_text(json.dumps({"stages": {}}))
    assert measured_facts(CONTENT) is None
    # for a model alone, and of this code alone
    assert read_facts(CONTENT) == auto.UNMEASURED
    assert read_facts({"model": {"path": None}}) is None
    for content in (asdict(auto.UNMEASURED) | {"heads": 8}, {"parameters": 1}):
        FACTS_PATH.write_text(json.dumps(content))
        assert read_facts(CONTENT) is None


# --- bounds


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("a", [10**9, -(10**9), 0, [1, -0.5, 0.0, 1e18], True, "x" * 100_000],
         [10**9 + 1, [1, -(10**10)], 1e-39, [{"b": {"c": -1e19}}], [{"temperature": 101}], 10**400,
          "x" * 100_001]),
        ("temperature", [0.01, 100.0], [0.009, 101.0]), ("learning_rate", [1.0], [1.01]),
        ("token_budget", [10**15], [10**15 + 1]), ("max_tokens", [2**27], [2**27 + 1]),
        ("num_layers", [1024], [1025]), ("seeds", [[2**63 - 1]], [[2**63]]),
    ],
)  # fmt: skip
def test_a_number_out_of_bounds_is_refused_by_its_key_wherever_it_stands(name, right, wrong):
    model = pydantic.create_model("Section", __base__=Params, **{name: (Any, ...)})
    for value in right:
        model(**{name: value})
    for value in wrong:
        with pytest.raises(pydantic.ValidationError) as refused:
            model(**{name: value})
        assert [error["loc"] for error in refused.value.errors()] == [(name,)]
        assert len(refused.value.errors()[0]["msg"]) < 300


# --- the command of a row


def test_a_command_has_the_words_of_its_row():
    content = read_yaml(ROOT / "params.yaml")
    assert tables.MODELS.keys() == set(TABLES) == tables.READS.keys() | {"pools"}
    for table in TABLES:
        for name, words in content[table].items():
            options = [word for key, value in words.items() for word in (f"--{key}", value)]
            row = rows.parse_row((name, *options))
            assert (row.name, row.policy, row.on) == (name, words["from"], words.get("on", ""))
            assert row.preset == words.get("preset", words.get("split"))
            assert row.by == words.get("train", words.get("by", ""))
    assert rows.parse_row(["x", "--files", "a.txt", "b c.txt"]).files == ("a.txt", "b c.txt")
    for table, kinds in tables.READS.items():
        for kind in kinds:
            row = tables.TableRow(table=table, name="x", words={"by": kind})
            assert row.entry_point in rows.ENTRY_POINTS


def test_other_keys_of_a_row_are_numbers_of_its_section():
    words = ["x", "--train", "grpo", "--preset", "dapo", "--from", "sft", "--on", "rewards/rule"]
    options = ["--max_new_tokens", "20", "--optim.learning_rate", "5e-05",
               "--optim.weight_decay", "0.5"]  # fmt: skip
    optim = {"learning_rate": 5e-5, "weight_decay": 0.5}
    overrides = rows.parse_row([*words, *options]).overrides
    assert overrides == {"max_new_tokens": 20, "optim": optim}
    for wrong in (["--steps"], ["--Steps", "3"], ["steps", "3"]):
        with pytest.raises(SystemExit):
            rows.parse_row([*words, *wrong])


# --- what plan writes and deletes

NO_TABLES: tables.Tables = {table: {} for table in TABLES}


def test_outputs_that_no_row_makes_are_deleted_and_every_table_has_a_folder(tmp_path):
    lasting = ["policies/base/model", "policies/sft/model", "samples/sft", "runs/train/sft", "raw",
               "policies/.sft.partial", "policies/.sft.old", "runs/prepare_data",
               "studies/search"]  # fmt: skip
    stale = ["policies/dapo/model", "samples/dapo", "evaluations/dapo", "journals/train/dapo",
             "journals/sample/dapo", "pools/dapo", "pools/.dapo.partial", "samples/base",
             "journals/reward/old", "policies/sft.old", "policies/sft.partial",
             "policies/.sft.old.partial", "policies/.sft.partial.old"]  # fmt: skip
    for folder in (*lasting, *stale):
        (tmp_path / folder).mkdir(parents=True)
    plan.delete_stale(tmp_path, NO_TABLES | {"policies": {"sft": {}}})
    assert {folder for folder in [*lasting, *stale] if (tmp_path / folder).is_dir()} == {*lasting}
    # DVC warns of an empty folder that a stage depends on
    assert [path.name for path in (tmp_path / "steps").iterdir()] == [plan.NO_ROWS]
    plan.delete_stale(tmp_path, {table: {"new": {}} for table in TABLES})
    assert [[*(tmp_path / table).iterdir()] for table in ("steps", "environments")] == [[], []]


def test_a_row_on_the_hub_depends_on_a_file_with_its_id(tmp_path):
    for name in ("owner/mine", "owner/other"):
        words = {"by": "people", "preset": "people", "from": "base", "on": f"hub/{name}"}
        plan.write_hub_ids(tmp_path, NO_TABLES | {"pairs": {"mine": words}})
        assert read_files(tmp_path) == {name: f"{name}\n".encode()}
    plan.write_hub_ids(tmp_path, NO_TABLES)
    assert read_files(tmp_path) == {plan.NO_ROWS: b""}


def test_digests_of_the_sources_follow_their_content_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_raw("mine.jsonl", [{"question": "2+2?", "answer": "4"}])
    params = {"model": {"path": None}, "data": {"source": {"path": "data/raw"}}}
    before = plan.digest_inputs(params)
    assert list(before) == ["data/raw/mine.jsonl"]
    Path("data/raw/mine.jsonl").touch()
    Path("data/raw/notes.md").touch()
    assert plan.digest_inputs(params) == before
    assert plan.digest_inputs(params | {"data": {"source": [{"path": "data/raw"}]}}) == before
    write_raw("mine.jsonl", [{"question": "2+2?", "answer": "5"}])
    assert plan.digest_inputs(params).keys() == before.keys()
    assert plan.digest_inputs(params) != before
    assert plan.digest_inputs(read_yaml(ROOT / "params.yaml")) == {}  # generated
    template, source = Path("data/raw/own.jinja"), {"source": {"kind": "word_problems"}}
    model = {"path": "owner/on-the-hub", "chat_template": str(template)}
    digests = []
    for text in "ab":
        template.write_text(text)
        digests.append(plan.digest_inputs({"model": model, "data": source}))
    assert [list(digest) for digest in digests] == [["model.chat_template"]] * 2
    assert digests[0] != digests[1]
    kept = model | {"chat_template": "keep_thoughts"}
    assert plan.digest_inputs({"model": kept, "data": source}) == {}


# --- processes


def run_plan(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stages.plan", *words]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


@pytest.mark.slow
def test_plan_json_has_the_rows_as_they_are_written(tmp_path):
    shutil.copytree(ROOT / "stages", tmp_path / "stages")
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    recipe = "stages/recipes/iterative_dpo.yaml"
    text = (tmp_path / "dvc.yaml").read_text()
    (tmp_path / "dvc.yaml").write_text(text.replace("vars: []", f"vars: [{recipe}]"))
    result = run_plan(tmp_path, "--default", "params.yaml", "--iterative-dpo", recipe)
    assert result.returncode == 0, result.stderr
    written = json.loads((tmp_path / "data/plan.json").read_text())
    # A forecast would be another at each run, and is the doctor's.
    assert result.stdout == f"The plan is valid: {sum(map(len, written.values()))} rows.\n"
    content = read_yaml(ROOT / "params.yaml")
    assert list(written) == ["policies", "pools", "pairs", "steps", "rewards"]
    assert list(written["policies"]) == [*content["policies"], "dpo-2", "dpo-3"]
    assert written["rewards"] == content["rewards"]
    for wrong in ((), ("--help",), ("--chekc", "params")):
        result = run_plan(tmp_path, *wrong)
        assert (result.returncode, (" ".join(wrong) or "no table") in result.stderr) == (1, True)
    # The check of the first stage has nothing left to do: a lock, and the digest that has passed.
    assert len([*(tmp_path / ".pipe/preflight").iterdir()]) == 2
    # It reads every `Config` without the libraries that compute.
    command = [sys.executable, "-X", "importtime", "-m", "stages.plan", "--check"]
    result = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "stages.loops.rl" in imported
    assert not imported & {"torch._C", "transformers.dependency_versions_check", "dvc.info"}
    (tmp_path / "params.yaml").write_text("seeds: [0]\n")
    result = run_plan(tmp_path, "--check")
    assert (result.returncode, "Traceback" in result.stderr) == (1, False)


SHELL = "$(touch escaped)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "words", "stage"),
    [("policies", {SHELL: {}}, f"train@{SHELL}"),
     ("policies", {"a\ntouch escaped": {}}, "train@a\ntouch escaped"),
     ("policies", {"a": {SHELL: "b"}}, "train@a"), ("tables", {SHELL: "params.yaml"}, "plan")],
    ids=["name", "newline", "key", "table"],
)  # fmt: skip
def test_no_name_reaches_a_shell_even_where_the_stage_is_run_alone(
    tmp_path, monkeypatch, table, words, stage
):
    shutil.copytree(ROOT / "stages", tmp_path / "stages")
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    content = read_yaml(ROOT / "params.yaml")
    like = content["policies"]["sft"]
    added = {name: like | row if isinstance(row, dict) else row for name, row in words.items()}
    content[table].update(added)
    with (tmp_path / "params.yaml").open("w") as file:
        YAML(typ="safe").dump(content, file)
    for path in ("data/code/train_sft.json", "data/code/presets/sft.json", "data/prompts/a",
                 "data/policies/base/model/a", "data/demonstrations/a", "data/raw/a"):  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.setenv("SHELL", "/bin/sh")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    dvc = [sys.executable, "-m", "dvc"]
    init_dvc(tmp_path)
    command = [*dvc, "repro", "-s", stage]
    result = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert result.returncode != 0
    assert "The plan is not valid" in result.stderr, result.stderr
    assert not (tmp_path / "escaped").exists()


# --- random streams


def test_a_stream_has_a_seed_by_its_names_and_their_places():
    # printf '0\x1fstr:a' | b2sum -l 64 gives e118e84d55794c82; without its last bit:
    assert derive_seed(0, "a") == 8109984738409489985
    names = [(), ("a",), ("b",), ("a", "b"), ("b", "a"), ("ab",), (1,), ("1",), ("a", 1), (1, "a")]
    seeds = {derive_seed(seed, *words) for seed in (0, 1) for words in names}
    streams = {derive_seed(0, "rollout", step, f"p{i}") for step in range(50) for i in range(200)}
    assert (len(seeds), len(streams)) == (20, 10_000)
    assert all(0 <= seed < 2**63 for seed in seeds | streams)
