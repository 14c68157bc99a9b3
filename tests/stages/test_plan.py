"""What `plan` refuses and deletes, on this repository's own files."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from ruamel.yaml import YAML

from stages import plan, plan_checks, rows, source_checks, tables
from stages.config import read_yaml
from stages.label_people import PeoplePreset
from stages.params import load_config
from stages.rows import TABLES
from stages.sources.problem_files import FileSource

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "stages/recipes").glob("*.yaml"))
LIKE = {"train": "grpo", "preset": "dapo", "from": "sft", "on": "rewards/rule"}


@pytest.fixture(scope="module")
def modules():
    return plan_checks.load_entry_points()


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The files that plan reads, in an empty folder."""
    for name in ("params.yaml", "dvc.yaml", "stages/presets.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "stages/recipes", tmp_path / "stages/recipes")
    monkeypatch.chdir(tmp_path)
    folders = {table: ROOT / folder for table, folder in tables.OWN_SOURCES.items()}
    monkeypatch.setattr(tables, "OWN_SOURCES", folders)
    return tmp_path


@pytest.fixture
def problems(files, modules, monkeypatch):
    """What is wrong with params.yaml, and with recipes, after an edit."""
    monkeypatch.setattr(plan_checks, "load_entry_points", lambda: modules)

    def find(edit=lambda content: None, *recipes):
        content = YAML(typ="safe").load(ROOT / "params.yaml")
        edit(content)
        with Path("params.yaml").open("w") as file:
            YAML(typ="safe").dump(content, file)
        return plan.check_plan([Path("params.yaml"), *recipes])[1]

    return find


def row(table, name, **words):
    def edit(content):
        before = content[table].get(name, LIKE if table == "policies" else {})
        content[table][name] = {**before, **{key.rstrip("_"): word for key, word in words.items()}}

    return edit


def test_what_is_committed_is_right(problems):
    assert problems() == []


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_right_and_says_where_it_is(problems, recipe):
    result = problems(lambda content: None, recipe)
    # people's pairs are a file that the user puts there
    assert [item for item in result if "there is no file or folder data/raw/" not in item] == []
    relative = recipe.relative_to(ROOT).as_posix()
    Path("dvc.yaml").write_text(f"vars: [{relative}]\n")
    assert plan.list_tables() == ([Path("params.yaml"), Path(relative)], [])
    first = recipe.read_text().splitlines()[0]
    assert first.startswith("# ")
    assert "https://arxiv.org/abs/" in recipe.read_text()


def test_a_policy_is_one_line(problems):
    assert problems(row("policies", "dapo")) == []


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (row("policies", "dapo", on="rewards/preference", preset="grpo_process"),
         "policies.dapo: advantage step_zscore"),
        (row("policies", "ppo", on="rewards/rule"), "policies.ppo: value_init is reward_model"),
        (row("rewards", "rule", preset="process_sum"),
         "rewards.rule: components of kind process: expected `on: rewards/<name>`"),
        (row("rewards", "rule", on="own/brevity"),
         "rewards.rule: components of kind answer, final_line: expected `on: prompts`"),
        (row("policies", "dapo", from_="base"), "policies.dapo.from: model.path is null"),
        (row("policies", "rft", train="sft", preset="rejection_sampling", on="pairs/verifier"),
         "policies.rft.on: 'pairs/verifier', by verifier, holds no demonstrations"),
        (row("policies", "taught", train="sft", preset="forward_kl", on="demonstrations"),
         "policies.taught: a preset with a teacher learns from completions"),
        (row("pairs", "taught", by="teacher", preset="teacher", from_="base", on="pools/sft"),
         "pairs.taught.from: no stage writes the weights of 'base'"),
        (row("rewards", "rule", preset="rule_own", on="own/brevty"),
         "rewards.rule.on: no row makes 'own/brevty'; did you mean 'own/brevity'?"),
        (lambda content: content["data"].update(answer_forms=["boxed"]),
         "rewards.rule: the component 'final_line' rewards answers in the form 'hash'"),
        (lambda content: content["data"].update(answer_forms=["hash", "bxed"]),
         "data.answer_forms.1: expected one of hash, boxed"),
        (lambda content: content.update(baseline="stf"), "baseline: no row makes 'stf'; did you"),
        (lambda content: content.update(seeds=[]), "seeds: "),
        (lambda content: content.update(polcies={}), "polcies: unknown key"),
        (lambda content: content.pop("lora"), "lora: missing"),
        (lambda content: content["grpo"].update(num_step=3), "grpo.num_step: unknown key"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_its_place(problems, edit, named):
    """Besides the rows and numbers of tests/bad_inputs."""
    (message,) = problems(edit)
    assert message.startswith(named)


def test_a_row_has_sizes_of_its_own(problems, modules):
    sizes = {"num_steps": 8, "optim": {"learning_rate": 1e-4}}
    assert problems(row("policies", "dapo", **sizes)) == []
    wrong = {
        "num_stepz": 8,
        "optim": {"learning_rat": 1},
        "group_size": "x",
        "prompts_per_step": [4],
    }
    assert problems(row("policies", "dapo", **wrong)) == [
        "policies.dapo.prompts_per_step: expected a number or a word, found [4]"
    ]
    del wrong["prompts_per_step"]
    assert problems(row("policies", "dapo", **wrong)) == [
        "policies.dapo.num_stepz: unknown key; did you mean 'num_steps'?",
        "policies.dapo.optim.learning_rat: unknown key; did you mean 'learning_rate'?",
    ]
    (result,) = problems(row("policies", "dapo", num_steps=10**400))
    assert result.startswith("policies.dapo: grpo.num_steps: expected")
    result = problems(row("policies", "dapo", group_size=1))  # as one of the section
    assert result == [
        "policies.dapo: group_size is 1; advantage group_zscore compares completions: at least 2"
    ]


def test_a_stage_reads_the_sizes_of_its_row_and_what_follows_from_them(files, modules):
    words = ["dapo", "--train", "grpo", "--preset", "dapo", "--from", "sft", "--on", "rewards/rule"]
    dapo = rows.parse_row([*words, "--max_new_tokens", "20", "--optim.learning_rate", "5e-05"])
    assert dapo.overrides == {"max_new_tokens": 20, "optim": {"learning_rate": 5e-5}}
    config = load_config(modules["train_grpo"], "dapo", overrides={"grpo": dapo.overrides})
    usual = load_config(modules["train_grpo"], "dapo")
    assert config.grpo.optim.learning_rate == 5e-5
    assert config.grpo.max_new_tokens == 20
    assert usual.grpo.model_copy(
        update={"max_new_tokens": 20, "optim": config.grpo.optim}
    ) == config.grpo  # fmt: skip
    assert config.grpo.optim.max_grad_norm == usual.grpo.optim.max_grad_norm


def test_all_errors_are_listed_at_once_and_a_mistyped_key_is_one_error(problems):
    def edit(content):
        row("policies", "dapo", from_="sfft", preset="dapoo")(content)
        content["grpo"]["num_stepps"] = content["grpo"].pop("num_steps")
        content["seeds"] = [1, 1]

    assert problems(edit) == [
        "policies.dapo.from: there is no policy 'sfft'; did you mean 'sft'?",
        "seeds: expected at least one, each once and none below 0, found [1, 1]",
        "policies.dapo.preset: stages/presets.yaml has no 'dapoo'; did you mean 'dapo'?",
        "grpo.num_stepps: unknown key; did you mean 'num_steps'?",
    ]


def test_a_wrong_number_of_a_preset_is_refused_by_its_name(problems, files):
    path = files / "stages/presets.yaml"
    text = path.read_text()
    assert text.count("\nverifier: {max_pairs_per_problem: 4}") == 1
    path.write_text(text.replace("max_pairs_per_problem: 4}", "max_pairs_per_problem: x}"))
    result = problems()
    assert len(result) == 1
    assert result[0].startswith("stages/presets.yaml: verifier.max_pairs_per_problem: ")
    assert result[0].endswith("expected a whole number, found 'x'")


def test_a_judge_behind_an_endpoint_is_from_base(problems, files):
    endpoint = {"kind": "endpoint", "model": "m", "revision": "1", "api": "chat", "top_logprobs": 9}
    path = files / "stages/presets.yaml"
    presets = YAML(typ="safe").load(path.read_text())
    served = presets["judge"] | {"judge": endpoint}
    path.write_text(path.read_text() + f"\nserved: {json.dumps(served)}\n")
    assert problems(row("pairs", "judge", preset="served", from_="base")) == []
    (problem,) = problems(row("pairs", "judge", from_="base"))
    assert problem.startswith("pairs.judge.from: model.path is null")


COIN = {"train": "sft", "preset": "sft", "from_": "sft", "on": "demonstrations"}


def test_a_control_is_of_a_kind_starts_from_an_evaluated_policy_and_is_no_baseline(problems):
    assert problems(row("policies", "coin", **COIN, control="no_effect")) == []
    (wrong,) = problems(row("policies", "coin", **COIN, control="nothing"))
    assert wrong.startswith("policies.coin.control: expected 'no_effect' or 'no_skill', found")
    (wrong,) = problems(row("policies", "coin", **COIN | {"from_": "base"}, control="no_skill"))
    assert wrong.startswith("policies.coin.from: a control is compared with the policy")
    edit = row("policies", "dpo", control="no_effect")
    (wrong,) = problems(lambda content: (edit(content), content.update(baseline="dpo")))
    assert wrong == "baseline: dpo is a control; take the policy that it starts from"


def test_every_circle_of_rows_is_listed(problems):
    def edit(content):
        content["policies"]["dpo"]["from"] = "dpo-2"
        content["policies"]["dpo-2"] = content["policies"]["dpo"] | {"from": "dpo"}

    assert problems(edit) == [
        "rows that need each other: policies/dpo -> policies/dpo-2 -> policies/dpo"
    ]


def test_a_row_of_a_recipe_that_says_something_else_is_refused(problems):
    other = Path("other.yaml")
    other.write_text(
        "tables: {other: other.yaml}\nbaseline: dpo\n"
        "policies: {sft: {train: sft, preset: cold_start, from: base, on: demonstrations}}\n"
    )
    assert problems(lambda content: None, other) == [
        "other.yaml: baseline: unknown key; remove it",
        "policies.sft: has other words in another file than in other.yaml",
    ]


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ("mine.yaml", "dvc.yaml: vars: expected files in stages/recipes, where a change"),
        ("{policies: {}}", "dvc.yaml: vars: expected files in stages/recipes"),
        ("stages/recipes/gone.yaml", "dvc.yaml: vars: there is no file 'stages/recipes/gone.y"),
        ("stages/recipes/mine.yaml", "stages/recipes/mine.yaml: tables: expected `tables: {mine:"),
    ],
)
def test_rows_where_no_change_is_noticed_are_refused(files, entry, named):
    for path in ("mine.yaml", "stages/recipes/mine.yaml"):
        Path(path).write_text("policies: {}\n")
    Path("dvc.yaml").write_text(f"vars: [{entry}]\n")
    (result,) = plan.list_tables()[1]
    assert result.startswith(named)


def test_what_no_row_makes_is_deleted_and_every_table_has_a_folder(tmp_path):
    kept = ["policies/base/model", "policies/sft/model", "samples/sft", "runs/train/sft",
            "runs/prepare_data", "raw", "studies/search"]  # fmt: skip
    gone = ["policies/dapo/model", "samples/dapo", "evaluations/dapo", "journals/train/dapo",
            "journals/sample/dapo", "pools/dapo", "pools/.dapo.partial",
            "journals/reward/old"]  # fmt: skip
    for folder in (*kept, *gone):
        (tmp_path / folder).mkdir(parents=True)
    plan.delete_stale(tmp_path, {table: {} for table in TABLES} | {"policies": {"sft": {}}})
    assert [folder for folder in kept if not (tmp_path / folder).is_dir()] == []
    assert [folder for folder in gone if (tmp_path / folder).exists()] == []
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {*TABLES, "samples", "evaluations", "journals", "runs", "raw", "studies"}
    # DVC warns of an empty folder that a stage depends on
    assert [path.name for path in (tmp_path / "steps").iterdir()] == [plan.NO_ROWS]
    plan.delete_stale(tmp_path, {table: {"new": {}} for table in TABLES})
    assert [*(tmp_path / "steps").iterdir()] == []


@pytest.mark.slow
def test_plan_json_holds_the_rows_as_they_are_written(tmp_path):
    shutil.copytree(ROOT / "stages", tmp_path / "stages")
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    command = [sys.executable, "-m", "stages.plan"]
    recipe = "stages/recipes/iterative_dpo.yaml"

    def run(*words):
        return subprocess.run(
            [*command, *words], cwd=tmp_path, check=False, capture_output=True, text=True
        )

    text = (tmp_path / "dvc.yaml").read_text()
    (tmp_path / "dvc.yaml").write_text(text.replace("vars: []", f"vars: [{recipe}]"))
    result = run("--default", "params.yaml", "--iterative-dpo", recipe)
    assert result.returncode == 0, result.stderr
    written = json.loads((tmp_path / "data/plan.json").read_text())
    content = read_yaml(ROOT / "params.yaml")
    assert list(written) == ["policies", "pools", "pairs", "steps", "rewards"]
    assert list(written["policies"]) == [*content["policies"], "dpo-2", "dpo-3"]
    assert written["rewards"] == content["rewards"]
    assert result.stdout == f"The plan is valid: {sum(map(len, written.values()))} rows.\n"
    for wrong in ((), ("--help",), ("--default",), ("--chekc", "params")):
        completed = run(*wrong)
        assert completed.returncode == 1
        assert f"found {' '.join(wrong) or 'no table'}; expected:" in completed.stderr
        assert "python -m stages.plan --check" in completed.stderr
    # The check of the first stage has nothing left to do.
    passed = [path.name for path in (tmp_path / ".pipe/preflight").iterdir()]
    assert len(passed) == 1
    (tmp_path / "params.yaml").write_text("seeds: [0]\n")
    result = run("--check")
    assert result.returncode == 1
    assert "policies: expected rows, found None" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_process_model_ends_its_steps_where_the_labels_do(problems):
    assert problems() == []
    with Path("stages/presets.yaml").open("a") as file:
        file.write('process_dots: {<<: *process, separator: ". "}\n')
    text = Path("stages/presets.yaml").read_text().replace("\nprocess:\n", "\nprocess: &process\n")
    Path("stages/presets.yaml").write_text(text)
    (result,) = problems(row("rewards", "process", preset="process_dots"))
    assert result.startswith("rewards.process: preset 'process_dots' has the separator '. '")


def test_what_needs_a_gold_answer_is_refused_where_there_is_none(problems):
    says = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    write_raw({"messages": says})

    def converse(content):
        content["data"] |= {"source": {"path": "data/raw/mine.jsonl"}, "mixture": None}
        content["policies"]["vapo"] = {
            "train": "ppo", "preset": "vapo", "from": "sft", "on": "rewards/preference",
        }  # fmt: skip

    result = problems(converse)
    assert {item.partition(":")[0] for item in result} == {
        "pairs.verifier", "steps.sft", "rewards.rule", "rewards.outcome", "policies.vapo",
    }  # fmt: skip
    assert all("Take people's or a judge's pairs" in item for item in result)

    def of_people(content):
        converse(content)
        for table in ("pools", "steps"):
            content[table] = {}
        content["pairs"] = {
            "people": {"by": "people", "preset": "people", "from": "sft", "on": "x"}
        }
        learned = {"by": "preference", "preset": "bradley_terry", "on": "pairs/people"}
        scored = {"by": "rule", "preset": "model", "from": "base", "on": "rewards/people"}
        content["rewards"] = {"people": {**learned, "from": "sft"}, "scored": scored}
        trained = {"ppo": "rewards/people", "grpo": "rewards/scored", "dpo": "pairs/people"}
        for name in ("dpo-ai", "vapo"):
            del content["policies"][name]
        for name, on in trained.items():
            content["policies"][name]["on"] = on

    assert [problem.partition(":")[0] for problem in problems(of_people)] == ["pairs.people.on"]


def write_raw(*rows: object) -> None:
    path = Path("data/raw/mine.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_who_imitates_is_refused_where_there_are_no_solutions_and_nobody_else(problems):
    write_raw({"question": "2+2?", "answer": "4"})

    def without_solutions(content):
        content["data"] |= {"source": {"path": "data/raw/mine.jsonl"}, "mixture": None}

    result = problems(without_solutions)
    assert [item.partition(":")[0] for item in result] == ["policies.sft"]
    assert "neither solutions nor replies" in result[0]


def test_files_are_read_whole_and_of_large_ones_the_first_rows(problems, monkeypatch):
    good = [{"question": f"{n}+2?", "answer": str(n + 2), "solution": None} for n in range(300)]
    columns = {"question": "question", "answer": "answer", "solution": "solution"}

    def of_file(content):
        source = {"path": "data/raw/mine.jsonl", "columns": columns}
        content["data"] |= {"source": source, "mixture": None}

    write_raw(*good, {"question": "2+2?", "answer": "4", "solution": "#### 4"})
    assert problems(of_file) == []
    write_raw(*good, {"question": "2+2?", "answer": "4", "solution": "#### 4", "tools": [1]})
    assert "row 301: tools carries meaning" in problems(of_file)[0]
    write_raw(*good, *[{"question": "2+2?"}] * 5)
    assert "5 of 305 rows cannot be used (5 missing column)" in problems(of_file)[0]
    monkeypatch.setattr(source_checks, "MAX_WHOLE_BYTES", 1000)
    (result,) = problems(of_file)
    assert result.startswith("policies.sft: it imitates demonstrations")
    assert result.endswith("(seen in the first 200 rows of each split)")
    source = FileSource(path="data/raw/mine.jsonl")
    people = tables.TableRow(
        table="pairs", name="mine", words={"by": "people", "on": "raw/mine.jsonl"}
    )
    assert list(source_checks.describe_partly_read(source, [people])) == [
        f"{place}: 0 MiB, of which the first 200 rows were checked"
        for place in ("data.source", "pairs.mine")
    ]


def test_people_s_pairs_are_read_whole(problems):
    good = [{"prompt": f"{n}?", "chosen": "a", "rejected": "b"} for n in range(300)]
    edit = row("pairs", "mine", by="people", preset="people", from_="base", on="raw/mine.jsonl")
    write_raw(*good)
    assert problems(edit) == []
    write_raw(*good, *[{"prompt": "?", "chosen": "a", "rejected": "a"}] * 4)
    (result,) = problems(edit)
    assert result.startswith("pairs.mine: 4 of 304 rows cannot be used (4 equal answers)")


def test_lone_ratings_are_wrong_only_where_the_file_is_read_whole(problems, monkeypatch):
    edit = row("pairs", "mine", by="people", preset="people", from_="base", on="raw/mine.jsonl")
    write_raw(*({"prompt": f"{n}?", "response": "a", "score": n} for n in range(300)))
    assert "of 300 all are left out (300 alone)" in problems(edit)[0]
    monkeypatch.setattr(source_checks, "MAX_WHOLE_BYTES", 1000)
    assert problems(edit) == []
    write_raw(*({"prompt": f"{n}?", "response": " ", "score": n} for n in range(300)))
    assert "no row can be read; the first: mine.jsonl, line 1: empty answer" in problems(edit)[0]


def test_a_split_of_people_s_file_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_raw({"prompt": "?", "chosen": "a", "rejected": "b"})
    words = {"by": "people", "preset": "people", "from": "base", "on": "raw/mine.jsonl"}
    people = tables.TableRow(table="pairs", name="mine", words=words)
    preset = {"licence": "MIT", "heldout_share": 0.1, "max_tokens": 9, "max_bad_share": 0,
              "max_long_share": 0}  # fmt: skip
    for split, expected in (("mine", 0), ("test_prefs", 1)):
        config = SimpleNamespace(preset=PeoplePreset(split=split, **preset))
        found = list(source_checks.check_people_file(people, config))
        assert len(found) == expected
    assert "split 'test_prefs': expected it in a file's name" in found[0]


@pytest.mark.parametrize(
    ("on", "message"),
    [("hub/owner/mine", None), ("hub/mine", None), ("hub/", "expected hub/<owner>/<name>"),
     ("hub/../mine", "expected hub/<owner>/<name>"), ("owner/mine", "`hub/<owner>/<name>`")],
)  # fmt: skip
def test_a_data_set_of_the_hub_is_a_row_s_source(problems, on, message):
    result = problems(row("pairs", "mine", by="people", preset="people", from_="base", on=on))
    assert result == [] if message is None else message in result[0]


def test_a_row_on_the_hub_depends_on_a_file_with_its_id(tmp_path):
    of_hub = {"mine": {"by": "people", "preset": "people", "from": "base", "on": "hub/owner/mine"}}
    plan.write_hub_ids(tmp_path, {table: {} for table in TABLES} | {"pairs": of_hub})
    assert (tmp_path / "owner/mine").read_text() == "owner/mine\n"
    plan.write_hub_ids(tmp_path, {table: {} for table in TABLES})
    assert [path.name for path in tmp_path.iterdir()] == [plan.NO_ROWS]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"path": "data/raw/none.jsonl"}, "data.source: data/raw/none.jsonl: expected a file"),
        ({"path": "mine.jsonl"}, "data.source: expected files in data/raw"),
        ({"path": "data/raw/mine.jsonl", "columns": {"question": "q"}}, "not among the columns"),
        ({"path": "data/raw/mine.jsonl"}, "images carries meaning"),
    ],
)
def test_files_that_cannot_be_read_are_refused_before_anything_runs(problems, source, message):
    write_raw({"question": "2+2?", "answer": "4", "solution": "#### 4", "images": [1]})
    Path("mine.jsonl").write_text("{}")

    def of_files(content):
        content["data"] |= {"source": source, "mixture": None}

    (result,) = problems(of_files)
    assert message in result


def test_the_digests_of_the_raw_files_follow_their_content_alone(files):
    write_raw({"question": "2+2?", "answer": "4"})
    params = {"model": {"path": None}, "data": {"source": {"path": "data/raw"}}}
    before = plan.digest_inputs(params)
    assert list(before) == ["data/raw/mine.jsonl"]
    Path("data/raw/mine.jsonl").touch()
    Path("data/raw/notes.md").touch()
    assert plan.digest_inputs(params) == before
    write_raw({"question": "2+2?", "answer": "5"})
    assert plan.digest_inputs(params) != before
    assert plan.digest_inputs(read_yaml(ROOT / "params.yaml")) == {}


def test_a_stage_reads_the_words_of_its_row():
    content = read_yaml(ROOT / "params.yaml")
    for table in TABLES:
        for name, words in content[table].items():
            arguments = [word for key, value in words.items() for word in (f"--{key}", value)]
            result = rows.parse_row((name, *arguments))
            assert result.name == name
            assert result.policy == words["from"]
            assert result.preset == words.get("preset", words.get("split"))
            assert result.on == words.get("on", "")
    assert tables.MODELS.keys() == set(TABLES)


PREPARED = ("data/code/train_sft.json", "data/prompts/a", "data/policies/base/model/a",
            "data/demonstrations/a", "data/raw/a")  # fmt: skip
SHELL = "$(touch escaped)"


def add_row(name: str, words: dict[str, str]):
    return lambda content: content["policies"].update({name: content["policies"]["sft"] | words})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edit", "stage"),
    [
        (add_row(SHELL, {}), f"train@{SHELL}"),
        (add_row("a; touch escaped", {}), "train@a; touch escaped"),
        (add_row("a\ntouch escaped", {}), "train@a\ntouch escaped"),
        (add_row("a", {SHELL: "b"}), "train@a"),
        (lambda content: content["tables"].update({SHELL: "params.yaml"}), "plan"),
    ],
)
def test_no_name_reaches_a_shell_even_where_the_stage_is_run_alone(tmp_path, edit, stage):
    shutil.copytree(ROOT / "stages", tmp_path / "stages")
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    content = read_yaml(ROOT / "params.yaml")
    edit(content)
    with (tmp_path / "params.yaml").open("w") as file:
        YAML(typ="safe").dump(content, file)
    for path in PREPARED:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment |= {"SHELL": "/bin/sh", "PYTHONPATH": str(tmp_path)}
    dvc = [sys.executable, "-m", "dvc"]
    subprocess.run([*dvc, "init", "--no-scm", "-q"], cwd=tmp_path, check=True)
    result = subprocess.run(
        [*dvc, "repro", "-s", stage], cwd=tmp_path, env=environment, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode != 0
    assert "The plan is not valid" in result.stderr, result.stderr
    assert not (tmp_path / "escaped").exists()


SUMS = row("environments", "sums", by="own", preset="game", from_="base", on="own/calculator")
PLAYED = row("episodes", "demos", by="script", from_="base", on="environments/sums", split="train")


def with_rows(*edits):
    def edit(content):
        for item in (SUMS, PLAYED, *edits):
            item(content)

    return edit


def two_plays(policy, **words):
    """Two rows of episodes from test starts, the second with other words."""
    common = {"by": "policy", "on": "environments/sums", "split": "test"}
    edits = (
        row("episodes", "first", from_="base", **common),
        row("episodes", "second", from_=policy, **common, **words),
    )

    def edit(content):
        for item in edits:
            item(content)

    return edit


def test_a_policy_learns_in_an_environment_and_from_its_episodes(problems):
    learns = row("policies", "play", train="grpo", on="environments/sums", from_="copy")
    values = row("policies", "v", train="ppo", preset="ppo_environment", on="environments/sums")
    copies = row("policies", "copy", train="sft", preset="sft", on="episodes/demos")
    assert problems(with_rows(copies, learns, values)) == []
    others = row("environments", "game", by="textarena", preset="game", from_="base", on="prompts")
    assert problems(with_rows(others)) == []
    plays = row("episodes", "demos", by="policy", num_episodes=16, temperature=0.5)
    assert problems(with_rows(plays, two_plays("sft"))) == []


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (row("policies", "v", train="ppo", preset="ppo_strong_kl", on="environments/sums"),
         "policies.v: value_init is reward_model"),
        (row("policies", "d", train="dpo", preset="dpo", on="environments/sums"),
         "policies.d.on: train_dpo learns nothing from 'environments/sums'"),
        (row("policies", "s", train="sft", preset="sft", on="episodes/demo"),
         "policies.s.on: no row makes 'episodes/demo'; did you mean 'episodes/demos'?"),
        (row("environments", "sums", on="own/brevity"), "environments.sums.on: no row makes"),
        (row("environments", "sums", on="prompts"), "environment_own learns nothing from"),
        (row("environments", "sums", preset="rule"), "'rule' is a preset of reward_rule"),
        (row("episodes", "demos", split="preference"), "episodes.demos.split: expected 'train'"),
        (row("episodes", "demos", on="rewards/rule"), "play_script learns nothing from"),
        (row("episodes", "demos", num_episodes=4), "num_episodes and temperature are of"),
        (row("episodes", "demos", by="policy", num_episodes=0), "episodes.demos.num_episodes:"),
        (two_plays("sft", temperature=0.5), "episodes.second.temperature: expected that of"),
        (two_plays("base"), "episodes.second: plays the policy 'base' from the test starts"),
    ],
)  # fmt: skip
def test_wrong_words_about_environments_are_refused(problems, edit, expected):
    actual = problems(with_rows(edit))
    assert actual[0].startswith(expected) or f": {expected}" in actual[0], actual


def test_what_is_learned_from_starts_in_the_train_split(problems):
    copies = row("policies", "copy", train="sft", preset="sft", on="episodes/demos")
    (result,) = problems(with_rows(copies, row("episodes", "demos", split="test")))
    assert result.startswith("policies.copy.on: 'episodes/demos' has `split: test`")
