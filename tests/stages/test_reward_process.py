"""The stage on a random model: what it writes suffices to score by, and the same again."""

import dataclasses

import pytest
import stage_inputs
from stage_inputs import SEED
from tiny_checkpoints import COMPUTE, CPU, compute
from tiny_rollouts import OPTIM

from stages import reward_model
from stages import rows as table_rows
from stages.models import policy, process_head
from stages.models.model_tokenizer import train_tokenizer
from stages.models.process_head import TokenizedSolution
from stages.models.row_policy import TinyConfig, build_tiny
from stages.records import lines
from stages.records.steps import StepLabels
from stages.rewards import pool_scores, reward_file
from stages.rewards.pool_scores import Aggregation
from stages.rows import DATA

TINY = {
    "hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 16,
    "max_length": 64, "vocab_size": 800,
}  # fmt: skip
SOURCE = DATA / f"steps/old/{SEED}"
OUTPUT = DATA / "rewards/new"
OWN = OUTPUT / str(SEED)
WORDS = ("new", "--by", "process", "--preset", "mine", "--from", "sft", "--on", "steps/old")
RIGHT, WRONG = ["3 + 4 = 7\n", "#### 7"], ["3 + 4 = 8\n", "#### 8"]


PRESET = {
    "step_token": "auto",
    "separator": "\n",
    "targets": {"kind": "hard", "threshold": 0.0},
    "up_to_first_error": False,
    "num_epochs": 30,
    "batch_size": 2,
    "optim": OPTIM,
}


def rows(numbers, tokenizer, prompt="sum?\n"):
    return [
        StepLabels(
            id=f"p{number}",
            index=index,
            prompt=prompt,
            prompt_ids=tokenizer(prompt)["input_ids"],
            steps=steps,
            step_ids=[tokenizer(step)["input_ids"] for step in steps],
            labels=[float(steps is RIGHT)] * 2,
            num_completions=[4, 0],
            true_labels=[steps is RIGHT] * 2,
            correct=steps is RIGHT,
            source="math_shepherd",
        )
        for number in numbers
        for index, steps in enumerate((RIGHT, WRONG))
    ]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokenizer = train_tokenizer(["3 + 4 = 7\n#### 7 sum?"], TINY["vocab_size"])
    start = table_rows.locate_policy("sft", SEED)
    policy.save_model(build_tiny(TinyConfig(**TINY), tokenizer, 0), tokenizer, start)
    lines.write_lines(SOURCE / "train.jsonl", rows(range(4), tokenizer))
    # Another problem: what is held out may share no prompt with what is learned.
    heldout = rows([7], tokenizer, prompt="7 sum?\n")
    others = [dataclasses.replace(row, index=row.index + 2, labels=[None] * 2) for row in heldout]
    lines.write_lines(SOURCE / "heldout.jsonl", [*heldout, *others])


def run(**changes):
    stage_inputs.configure(
        PRESET | changes,
        compute=COMPUTE,
        model={"path": None, "revision": None, "thinking": None, "tiny": TINY},
        lora={"rank": 0, "alpha": 16},
    )
    reward_model.main("reward_process", *WORDS)
    return stage_inputs.metrics(OWN)


def test_it_learns_what_is_right_and_its_folder_alone_scores():
    metrics = run()
    assert metrics["solutions"] == 8
    assert metrics["generated_tokens"] == 0
    assert metrics["trained_tokens"] > 0
    assert metrics["heldout"]["solutions"] == 2, "those with labels"
    assert metrics["heldout"]["truth"]["balanced_accuracy"] == 1.0
    assert metrics["heldout"]["labels"]["auroc_within_problem"] == 1.0
    scorer = process_head.load_process_scorer(reward_file.model_path(OUTPUT, SEED), compute(), CPU)
    tokenizer = train_tokenizer(["3 + 4 = 7\n#### 7 sum?"], TINY["vocab_size"])
    steps = scorer.split(tokenizer("".join(RIGHT))["input_ids"])
    assert len(steps) == 2
    (scores,) = scorer(
        [TokenizedSolution(prompt_ids=tokenizer("sum?\n")["input_ids"], steps=steps)]
    )
    assert min(scores) > 0.5
    reward = reward_file.read_reward(OUTPUT)
    assert (reward.kind, reward.model, reward.composition.kinds()) == (
        "process",
        "process",
        {"process"},
    )


def test_how_scores_become_one_is_chosen_on_the_held_out_solutions():
    accuracy = run()["accuracy"]
    # Each kind tells right from wrong here, so the first of them is taken.
    assert accuracy["best_of"] == accuracy["weighted"] == dict.fromkeys(accuracy["best_of"], 1.0)
    result = pool_scores.read_aggregation(OWN)
    assert result == Aggregation(best_of="last", weighted="last")


def test_the_same_inputs_give_the_same_bytes():
    written = []
    for _ in range(2):
        run()
        files = [path for path in sorted(OUTPUT.rglob("*")) if path.is_file()]
        written.append({path: path.read_bytes() for path in files})
    assert written[0] == written[1]


def test_what_it_is_tested_on_is_not_learned():
    result = list(lines.read_lines(SOURCE / "train.jsonl", StepLabels))
    lines.write_lines(SOURCE / "heldout.jsonl", result[:2])
    with pytest.raises(ValueError, match=r"found 1 in both, such as 'sum\?"):
        run()
    assert not OUTPUT.exists()


def test_an_unknown_step_token_is_refused_before_anything_is_learned():
    with pytest.raises(ValueError, match=r"step_token 'ки': expected a special token"):
        run(step_token="ки")
    assert not OUTPUT.exists()
