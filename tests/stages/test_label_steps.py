"""The stage on a random model: what it writes, and that a kill in the middle changes nothing."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.repo import Repo
from ruamel.yaml import YAML
from tiny_checkpoints import COMPUTE

from stages import label_steps
from stages.models import model_tokenizer as tokenizers
from stages.models import policy
from stages.models.config import TinyConfig, build_tiny
from stages.records import lines
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.records.steps import PrefixCount, StepLabels

ROOT = Path(__file__).parents[2]
NAME, POOL, POLICY, SPLIT = "x", "sft-dev", "train_sft/sft/policy", "dev"
TINY = {
    "hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 16,
    "max_length": 128, "vocab_size": 800,
}  # fmt: skip
ENTRY = {
    "num_problems": None, "max_solutions_per_problem": 2, "num_completions": 4, "temperature": 1.0,
    "max_new_tokens": 5, "separator": "\n", "label": "soft",
    "audit": {"thresholds": [0.5], "num_bootstrap": 100, "confidence": 0.95},
}  # fmt: skip
# The random model states no answer, so its completions of what ends in "#### 9" come out right.
RIGHT, ODD, WRONG = (
    "3 + 4 = 7\n7 + 2 = 9\n#### 9",
    "3 + 4 = 7\n#### 9\n7 + 2 = 9",
    "3 + 4 = 8\n8 + 2 = 10\n#### 10",
)
DVC_YAML = f"""
stages:
  label_steps:
    foreach: [x]
    do:
      cmd: python -m stages.label_steps x {POOL} {POLICY} {SPLIT}
      deps: [data/sample_candidates/{POOL}/pool.jsonl]
      params: [seed, label_steps]
      outs: ['data/label_steps/${{item}}/steps.jsonl']
"""
# Four prefixes at once; the process kills itself when it is asked for the third part.
KILLED = f"""
import os, signal
from stages import label_steps
from stages.loops import step_labels

step_labels.CHUNK = 4
count = step_labels.count

def killed(*args, start, **kwargs):
    for step in count(*args, start=start, **kwargs):
        if step.index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield step

step_labels.count = killed
label_steps.main("x", "{POOL}", "{POLICY}", "{SPLIT}")
"""


def write_params(**changes):
    content = {
        "seed": 0,
        "compute": COMPUTE,
        "model": {"path": None, "revision": None, "tiny": TINY},
        "engine": "transformers",
        "label_steps": {SPLIT: ENTRY | changes},
    }
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(content, file)


def make_inputs(
    question="Anna has 3 apples. She buys 4 more. She finds {n} more. How many apples now?",
):
    tokenizer = tokenizers.train_tokenizer([RIGHT], TINY["vocab_size"])
    model = build_tiny(TinyConfig(**TINY), tokenizer, 0)
    policy.save(model, tokenizer, Path("data") / POLICY)
    prompts, pool = [], []
    for number in range(6):
        text = question.format(n=2)
        row = {"id": f"p{number}", "task": "solve", "question": text, "prompt": text, "answer": "9"}
        prompts.append(Prompt(prompt_ids=tokenizer(f"{number} {text}")["input_ids"], **row))
        for index, completion in enumerate((RIGHT, RIGHT, ODD if number % 2 else WRONG)):
            pool.append(
                Completion(
                    id=row["id"],
                    index=index,
                    completion=completion,
                    completion_ids=[*tokenizer(completion)["input_ids"], tokenizer.eos_token_id],
                    logprob_sum=0.0,
                    finish_reason="stop",
                    seed=0,
                )
            )
    lines.write(label_steps.PROMPTS / f"{SPLIT}.jsonl", prompts)
    lines.write(label_steps.POOLS / POOL / "pool.jsonl", pool)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_inputs()
    write_params()


def run():
    label_steps.main(NAME, POOL, POLICY, SPLIT)
    return json.loads((label_steps.OUTPUT / NAME / "metrics.json").read_text(encoding="utf-8"))


def written():
    """The bytes of every output but the run record."""
    output = label_steps.OUTPUT / NAME
    files = [path for path in output.rglob("*") if path.is_file() and "run" not in path.parts]
    return {str(path.relative_to(output)): path.read_bytes() for path in files}


def journal():
    rows = (label_steps.OUTPUT / NAME / "run/journal.jsonl").read_text().splitlines()
    return [{**json.loads(row), "time": 0} for row in rows]


def test_rows_counts_and_metrics_fit_together():
    metrics = run()
    rows = list(lines.read(label_steps.OUTPUT / NAME / "steps.jsonl", StepLabels))
    counts = list(lines.read(label_steps.OUTPUT / NAME / "prefixes.jsonl", PrefixCount))
    assert [(row.id, row.index) for row in rows[:4]] == [("p0", 0), ("p0", 2), ("p1", 0), ("p1", 2)]
    by_prefix = {(count.id, *count.prefix_ids): count for count in counts}
    assert len(by_prefix) == len(counts)
    for row in rows:
        ids = []
        for step_ids, label in zip(row.step_ids[:-1], row.labels[:-1], strict=True):
            ids += step_ids
            assert label == by_prefix[row.id, *ids].num_right / 4
        assert row.labels[-1] == float(row.correct)
        assert row.num_completions == [4] * (len(row.steps) - 1) + [0]
    stated = [row for row in rows if row.steps[1] == "#### 9"]
    assert all(row.labels[1] == 1.0 and row.true_labels == [True, True, False] for row in stated)
    # RIGHT and ODD share their first step
    assert (metrics["estimated_labels"], metrics["completed_prefixes"]) == (24, 21)
    assert metrics["generated_tokens"] == sum(count.generated_tokens for count in counts) > 0
    assert set(metrics["audit"]) == {"hard", "soft_0.5"}
    assert set(written()) == {
        "steps.jsonl", "prefixes.jsonl", "metrics.json", "plots/audit.csv", "plots/audit.png"
    }  # fmt: skip


def test_without_completions_the_labels_are_the_truth_and_no_model_is_read():
    write_params(num_completions=0)
    (Path("data") / POLICY / "model.safetensors").unlink()
    metrics = run()
    rows = list(lines.read(label_steps.OUTPUT / NAME / "steps.jsonl", StepLabels))
    assert all(row.labels == [float(one) for one in row.true_labels] for row in rows)
    assert {tuple(row.labels) for row in rows} == {(1.0,) * 3, (0.0,) * 3, (1.0, 1.0, 0.0)}
    assert (metrics["generated_tokens"], metrics["audit"]) == (0, {})
    assert (label_steps.OUTPUT / NAME / "prefixes.jsonl").read_bytes() == b""


def test_a_problem_that_was_not_generated_has_labels_but_no_truth():
    make_inputs("What is 3 + 4 + {n}?")
    metrics = run()
    rows = list(lines.read(label_steps.OUTPUT / NAME / "steps.jsonl", StepLabels))
    assert all(row.true_labels is None for row in rows)
    assert metrics["truly_right"] is None
    assert metrics["audit"] == {}
    write_params(num_completions=0)
    with pytest.raises(ValueError, match="num_completions 0 asks for true step labels"):
        run()


def test_the_first_problems_are_the_same_alone():
    run()
    steps = (label_steps.OUTPUT / NAME / "steps.jsonl").read_text().splitlines()
    write_params(num_problems=2)
    assert run()["problems"] == 2
    assert (label_steps.OUTPUT / NAME / "steps.jsonl").read_text().splitlines() == steps[:4]


def test_a_killed_stage_goes_on_where_it_stopped_and_writes_the_same_bits(monkeypatch):
    Path("dvc.yaml").write_text(DVC_YAML, encoding="utf-8")
    Repo.init(".", no_scm=True).close()
    monkeypatch.setattr(label_steps.step_labels, "CHUNK", 4)
    run()
    expected, logged = written(), journal()
    assert [row["index"] for row in logged] == [0, 1, 2, 3, 4, 5]
    (label_steps.OUTPUT / NAME / "steps.jsonl").unlink()

    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    killed = subprocess.run([sys.executable, "-c", KILLED], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    (kept,) = Path(".pipe").glob("label_steps@x-*/parts")
    assert sorted(path.name for path in kept.iterdir()) == ["000000.part", "000001.part"]

    drawn = []
    count = label_steps.step_labels.count

    def watched(*args, **kwargs):
        for step in count(*args, **kwargs):
            drawn.append(step.index)
            yield step

    monkeypatch.setattr(label_steps.step_labels, "count", watched)
    run()
    assert drawn == [2, 3, 4, 5]
    assert written() == expected
    assert journal() == logged
    assert not kept.exists()
