"""The stage on a random model: what it writes, and that a kill in the middle changes nothing."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import stage_inputs
from dvc.repo import Repo
from stage_inputs import POOL, SEED, WORDS
from tiny_checkpoints import COMPUTE

from stages import rows, steps_completions
from stages.loops import step_labels
from stages.models import policy
from stages.models.model_tokenizer import train_tokenizer
from stages.models.row_policy import TinyConfig, build_tiny
from stages.records import lines, pools
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.records.steps import PrefixCount, StepLabels
from stages.rows import DATA

ROOT = Path(__file__).parents[2]
OWN = DATA / f"steps/new/{SEED}"
TINY = {
    "hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 16,
    "max_length": 128, "vocab_size": 800,
}  # fmt: skip
PRESET = {
    "num_problems": None, "num_heldout_problems": 2, "max_solutions_per_problem": 2,
    "num_completions": 4, "temperature": 1.0, "separator": "\n",
    "label": "soft", "audit": {"thresholds": [0.5], "num_bootstrap": 100, "confidence": 0.95},
}  # fmt: skip
# The random model states no answer, so its completions of what ends in "#### 9" come out right.
RIGHT, ODD, WRONG = (
    "3 + 4 = 7\n7 + 2 = 9\n#### 9",
    "3 + 4 = 7\n#### 9\n7 + 2 = 9",
    "3 + 4 = 8\n8 + 2 = 10\n#### 10",
)
DVC_YAML = """
stages:
  label_steps:
    foreach: [new]
    do:
      cmd: python -m stages steps_completions ${item}
      deps: [data/pools/old]
      params: [seeds]
      outs: ['data/steps/${item}']
"""
# Four prefixes at once; the process kills itself when it is asked for the third part.
KILLED = f"""
import os, signal
from stages import steps_completions
from stages.loops import step_labels

step_labels.CHUNK = 4
count = step_labels.count_right

def killed(*args, start, **kwargs):
    for step in count(*args, start=start, **kwargs):
        if step.index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield step

step_labels.count_right = killed
steps_completions.main("steps_completions", *{WORDS})
"""


def set_preset(**changes):
    model = {"path": None, "revision": None, "thinking": None, "tiny": TINY}
    stage_inputs.configure(PRESET | changes, compute=COMPUTE, model=model, engine="transformers")


def make_inputs(
    question="Anna has 3 apples. She buys 4 more. She finds {n} more. How many apples now?",
):
    tokenizer = train_tokenizer([RIGHT], TINY["vocab_size"])
    model = build_tiny(TinyConfig(**TINY), tokenizer, 0)
    policy.save_model(model, tokenizer, rows.locate_policy("sft", SEED))
    for side, numbers in {"train": range(6), "heldout": range(6, 9)}.items():
        write_side(side, question, numbers, tokenizer)


def write_side(side, question, numbers, tokenizer):
    prompts, pool = [], []
    for number in numbers:
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
    stage_inputs.write_pool(side, prompts, pool)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_inputs()
    set_preset()


def run():
    steps_completions.main("steps_completions", *WORDS)
    return stage_inputs.metrics(OWN)


def labelled(side):
    return list(lines.read_lines(OWN / f"{side}.jsonl", StepLabels))


def written():
    """The bytes of every output but the run record."""
    return {path.name: path.read_bytes() for path in OWN.iterdir()}


def journal():
    path = DATA / f"journals/label_steps/new/journal-seed-{SEED}.jsonl"
    return [json.loads(row) for row in path.read_text().splitlines()]


def test_rows_counts_and_metrics_fit_together(monkeypatch):
    count = step_labels.count_right

    class Brief:
        def __init__(self, sampler):
            self.sampler = sampler

        def sample(self, prompts, seeds, *, max_new_tokens, **settings):
            assert max(max_new_tokens) > 2
            few = [min(2, limit) for limit in max_new_tokens]
            return self.sampler.sample(prompts, seeds, max_new_tokens=few, **settings)

    def briefly(sampler, *args, **kwargs):
        return count(Brief(sampler), *args, **kwargs)

    # In two tokens the random model cannot state another answer behind the right one.
    monkeypatch.setattr(step_labels, "count_right", briefly)
    metrics = run()
    result = {side: labelled(side) for side in ("train", "heldout")}
    counts = list(lines.read_lines(OWN / "prefixes.jsonl", PrefixCount))
    first = [(row.id, row.index) for row in result["train"][:4]]
    assert first == [("p0", 0), ("p0", 2), ("p1", 0), ("p1", 2)]
    by_prefix = {(count.id, *count.prefix_ids): count for count in counts}
    assert len(by_prefix) == len(counts)
    for row in [*result["train"], *result["heldout"][:4]]:
        ids = []
        for step_ids, label in zip(row.step_ids[:-1], row.labels[:-1], strict=True):
            ids += step_ids
            assert label == by_prefix[row.id, *ids].num_right / 4
        assert row.labels[-1] == float(row.correct)
        assert row.num_completions == [4] * (len(row.steps) - 1) + [0]
    stated = [row for row in result["train"] if row.steps[1] == "#### 9"]
    assert [row.labels[1] for row in stated] == [1.0] * 3
    assert all(row.true_labels == [True, True, False] for row in stated)
    # RIGHT and ODD share their first step
    numbers = metrics["train"]
    assert (numbers["estimated_labels"], numbers["completed_prefixes"]) == (24, 21)
    numbers = metrics["heldout"]
    assert (numbers["estimated_labels"], numbers["completed_prefixes"]) == (8, 7)
    assert metrics["generated_tokens"] == sum(count.generated_tokens for count in counts) > 0
    assert set(metrics["train"]["audit"]) == {"hard", "soft_0.5"}
    assert set(written()) == {"train.jsonl", "heldout.jsonl", "prefixes.jsonl", "metrics.json"}


def test_held_out_are_all_solutions_to_choose_among_of_which_some_are_labelled():
    run()
    actual = labelled("heldout")
    assert [(row.id, row.index) for row in actual[:4]] == [
        ("p6", 0),
        ("p6", 2),
        ("p7", 0),
        ("p7", 2),
    ]
    others = actual[4:]
    expected = [("p6", 1), ("p7", 1), ("p8", 0), ("p8", 1), ("p8", 2)]
    assert [(row.id, row.index) for row in others] == expected
    assert all(row.labels == [None] * 3 and row.source == "none" for row in others)
    assert [row.correct for row in others] == [True, True, True, True, False]


def test_without_completions_the_labels_are_the_truth_and_no_model_is_read():
    set_preset(num_completions=0)
    (rows.locate_policy("sft", SEED) / "model.safetensors").unlink()
    metrics = run()
    result = labelled("train")
    assert all(row.labels == [float(label) for label in row.true_labels] for row in result)
    assert {tuple(row.labels) for row in result} == {(1.0,) * 3, (0.0,) * 3, (1.0, 1.0, 0.0)}
    assert (metrics["generated_tokens"], metrics["train"]["audit"]) == (0, {})
    assert (OWN / "prefixes.jsonl").read_bytes() == b""


def test_a_problem_that_was_not_generated_has_labels_but_no_truth():
    make_inputs("What is 3 + 4 + {n}?")
    metrics = run()
    assert all(row.true_labels is None for row in labelled("train"))
    assert metrics["train"]["truly_right"] is None
    assert metrics["train"]["audit"] == {}
    set_preset(num_completions=0)
    with pytest.raises(ValueError, match="num_completions 0 asks for true step labels"):
        run()


def test_a_prefix_is_gone_on_with_as_far_as_the_longest_completion_of_the_pool(monkeypatch):
    seen, count = [], step_labels.count_right

    def watched(sampler, decode, parts, config, max_new_tokens, *args, **kwargs):
        seen.append(max_new_tokens)
        return count(sampler, decode, parts, config, max_new_tokens, *args, **kwargs)

    monkeypatch.setattr(step_labels, "count_right", watched)
    run()
    drawn = [
        completion
        for side in pools.SIDES
        for _, group in pools.read_pools(POOL, SEED, side)
        for completion in group
    ]
    assert seen == [max(len(item.completion_ids) for item in drawn)]


def test_the_first_problems_are_the_same_alone():
    run()
    before = labelled("train")
    set_preset(num_problems=2)
    assert run()["train"]["problems"] == 2
    assert labelled("train") == before[:4]


@pytest.mark.slow
def test_a_killed_stage_goes_on_where_it_stopped_and_writes_the_same_bits(monkeypatch):
    Path("dvc.yaml").write_text(DVC_YAML, encoding="utf-8")
    Repo.init(".", no_scm=True).close()
    monkeypatch.setattr(steps_completions.step_labels, "CHUNK", 4)
    run()
    expected, logged = written(), journal()
    assert [row["index"] for row in logged] == [0, 1, 2, 3, 4, 5, 6]
    (OWN / "train.jsonl").unlink()

    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    killed = subprocess.run([sys.executable, "-c", KILLED], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    (kept,) = Path(".pipe").glob(f"label_steps@new-*/seed-{SEED}/parts/prefixes")
    # the digest that follows a part's number is its content's
    assert sorted(path.name.split("-")[0] for path in kept.iterdir()) == ["000000", "000001"]

    drawn = []
    count = steps_completions.step_labels.count_right

    def watched(*args, **kwargs):
        for step in count(*args, **kwargs):
            drawn.append(step.index)
            yield step

    monkeypatch.setattr(steps_completions.step_labels, "count_right", watched)
    run()
    assert drawn == [2, 3, 4, 5, 6]
    assert written() == expected
    assert journal() == logged
    assert not kept.exists()
