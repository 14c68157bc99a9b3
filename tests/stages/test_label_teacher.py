"""A teacher's completions with the teacher, and the student that learns from both."""

import json

import pytest
import stage_inputs
import torch
from safetensors.torch import load_file
from stage_inputs import MODEL, SEED, WORDS, write_answers
from tiny_checkpoints import COMPUTE, load
from tiny_rollouts import OPTIM

from stages import label_teacher, rows, train_sft
from stages.records import lines
from stages.records.problems import Demonstration
from stages.rows import DATA

OWN = DATA / f"pairs/new/{SEED}"
SFT = {"num_epochs": 1, "learning_rate": None, "num_demonstrations": None, "tasks": None,
       "learn_prompt": False}  # fmt: skip
FORWARD_KL = SFT | {"teacher": {"temperature": 1.0, "likelihood_coef": 0.0}}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, torch_settings):
    """A pool of 3 completions a problem, a teacher `sft` and a student."""
    monkeypatch.chdir(tmp_path)
    write_answers("train", {"a": "445", "b": "444"})
    stage_inputs.write_policy()
    stage_inputs.write_policy("student")
    load("llama", 1).save_pretrained(rows.locate_policy("student", SEED))


def label(limit=None):
    stage_inputs.configure({"max_samples_per_problem": limit})
    label_teacher.main("label_teacher", *WORDS)


def learn(preset, on="pairs/new"):
    stage_inputs.configure(
        preset, compute=COMPUTE, model=MODEL, lora={"rank": 0, "alpha": 16},
        sft={"num_epochs": 1, "batch_size": 2, "optim": OPTIM},
    )  # fmt: skip
    words = ("--train", "sft", "--preset", "mine", "--from", "student", "--on", on)
    train_sft.main("train_sft", "taught", *words)
    return stage_inputs.metrics(DATA / f"policies/taught/training/{SEED}")


@pytest.mark.parametrize(("limit", "kept"), [(None, 3), (2, 2)])
def test_all_completions_are_written_right_or_wrong_and_as_often_as_they_were_drawn(limit, kept):
    label(limit)
    actual = list(lines.read_lines(OWN / "demonstrations.jsonl", Demonstration))
    assert [row.id for row in actual] == ["a"] * kept + ["b"] * kept
    expected = ["#### 4", "#### 4", "#### 5"][:kept]
    assert [row.completion for row in actual if row.id == "a"] == expected
    assert stage_inputs.metrics(OWN) == {
        "problems": 2, "demonstrations": 2 * kept, "tokens": 3 * 2 * kept,
        "teacher": "sft", "pool_policy": "sft",
    }  # fmt: skip


def test_a_pool_of_another_policy_than_the_teacher_is_named(caplog):
    label()
    assert not caplog.messages
    path = stage_inputs.POOL / "pool.json"
    path.write_text(json.dumps({"split": "preference", "policy": "student"}))
    label()
    names = {name: stage_inputs.metrics(OWN)[name] for name in ("teacher", "pool_policy")}
    assert names == {"teacher": "sft", "pool_policy": "student"}
    (message,) = caplog.messages
    assert "are of policy student, and the teacher is sft" in message


def test_the_teachers_weights_are_an_output_so_that_its_students_depend_on_them():
    label()
    teacher = rows.locate_policy("sft", SEED)
    there, here = (
        {path.name: path.read_bytes() for path in folder.iterdir()}
        for folder in (teacher, OWN / "model")
    )
    assert there == here


def test_the_student_learns_from_the_teacher_beside_the_completions():
    label()
    metrics = learn(FORWARD_KL)
    assert metrics["demonstrations"] == 6
    assert metrics["work"]["teacher"]["read"]["outputs"] == metrics["trained_tokens"] == 18
    assert metrics["work"]["teacher"]["trained_parameters"] == 0
    history = DATA / f"policies/taught/training/{SEED}/history.jsonl"
    steps = [json.loads(line)["metrics"] for line in history.read_text().splitlines()]
    assert steps[0]["loss/forward_kl"] > steps[-1]["loss/forward_kl"] > 0
    assert metrics["final_forward_kl"] == steps[-1]["loss/forward_kl"]
    result = load_file(DATA / f"policies/taught/model/{SEED}/model.safetensors")
    learn(SFT)  # on the tokens alone
    plain = load_file(DATA / f"policies/taught/model/{SEED}/model.safetensors")
    assert any(not torch.equal(result[name], plain[name]) for name in result)


def test_without_a_teacher_or_with_another_vocabulary_it_is_refused():
    label()
    (OWN / "model").rename(OWN / "other")
    with pytest.raises(ValueError, match="a row `by: teacher`"):
        learn(FORWARD_KL)
    (OWN / "other").rename(OWN / "model")
    file = OWN / "model/tokenizer.json"
    text = file.read_text()
    file.unlink()  # it is a second name of the teacher's
    file.write_text(text.replace("w30", "w99"))
    with pytest.raises(ValueError, match="expected one vocabulary"):
        learn(FORWARD_KL)
