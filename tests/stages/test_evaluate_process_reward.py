import json
from pathlib import Path

import pytest
import torch
from tiny_checkpoints import CPU, compute

from stages import evaluate_process_reward
from stages.models import policy, process_head, tiny, tokenizer
from stages.records import lines
from stages.records.step_labels import StepLabels
from stages.records.step_prediction import StepPrediction

PARAMS = """
seed: 3
compute: {dtype: float32, gradient_checkpointing: false, max_tokens: 4096,
  row_tokens: 64, pack_tokens: 0, max_batch: 64}
evaluate_process_reward: {leave_out_long: LONG, num_bootstrap: 100, confidence: 0.95}
"""
SHAPE = tiny.TinyConfig(
    hidden_size=16, num_layers=1, num_heads=2, intermediate_size=32, max_length=64, vocab_size=700
)
OUTPUT = evaluate_process_reward.OUTPUT / "mine"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_params()


def write_params(leave_out_long: str = "false") -> None:
    Path("params.yaml").write_text(PARAMS.replace("LONG", leave_out_long), encoding="utf-8")


@pytest.fixture
def words():
    """Saves a process model with a head of large weights, or all scores would be alike."""
    words = tokenizer.train(["2 + 2 = 4"], 700)
    policy.save(tiny.build(SHAPE, words, 0), words, Path("data/start"))
    step_id = words.convert_tokens_to_ids(tokenizer.STEP)
    model = process_head.from_policy("data/start", step_id, compute(), CPU, separator="\n")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in process_head.head(model).parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    policy.save(model, words, Path("data/process_model"))
    return words


def write(name: str, words, numbers: range, num_steps: int = 3) -> list[StepLabels]:
    rows = []
    for number in numbers:
        right = number % (num_steps + 1)
        steps = [f"{number} + {step} = {number + step}\n" for step in range(num_steps)]
        rows.append(
            StepLabels(
                id=f"p{number}",
                index=0,
                prompt=f"{number}?",
                prompt_ids=words(f"{number}?")["input_ids"],
                steps=steps,
                step_ids=[words(step)["input_ids"] for step in steps],
                labels=[None] * num_steps,
                num_completions=[0] * num_steps,
                true_labels=[step < right for step in range(num_steps)],
                correct=right == num_steps or number % 5 == 0,
                source="truth",
            )
        )
    lines.write(Path(f"data/{name}/steps.jsonl"), rows)
    return rows


def run() -> tuple[dict, list[StepPrediction]]:
    evaluate_process_reward.main("mine", "process_model", "dev", "test")
    metrics = json.loads((OUTPUT / "metrics.json").read_text(encoding="utf-8"))
    return metrics, list(lines.read(OUTPUT / "predictions.jsonl", StepPrediction))


def test_the_threshold_is_of_dev_and_the_numbers_are_of_test(words):
    write("dev", words, range(40))
    rows = write("test", words, range(40, 80))
    metrics, predictions = run()
    again, same = run()
    assert (again, same) == (metrics, predictions)
    assert (metrics["dev_solutions"], metrics["solutions"]) == (40, 40)
    assert (metrics["erroneous"], metrics["correct"]) == (30, 10)
    assert [one.first_error for one in predictions] == [
        row.true_labels.index(False) if False in row.true_labels else -1 for row in rows
    ]
    assert all(len(one.scores) == 3 for one in predictions)
    wrong = [one for one in predictions if one.first_error != -1]
    found = sum(one.predicted == one.first_error for one in wrong) / len(wrong)
    assert metrics["model"]["error_accuracy"]["value"] == pytest.approx(found, abs=1e-6)
    assert metrics["always_correct"]["f1"]["value"] == 0.0
    assert metrics["outcome_and_middle"]["correct_accuracy"]["value"] == 1.0
    assert metrics["right_answer_wrong_process"]["solutions"] > 0
    assert (OUTPUT / "plots/step_scores.png").is_file()
    # Other test rows, the same threshold; the scores of a row do not depend on the others.
    write("test", words, range(60, 80))
    fewer, last = run()
    assert (fewer["threshold"], fewer["dev_f1"]) == (metrics["threshold"], metrics["dev_f1"])
    assert [one.predicted for one in last] == [one.predicted for one in predictions[20:]]


def test_the_same_problems_for_dev_and_test_are_refused(words):
    write("dev", words, range(40))
    write("test", words, range(39, 60))
    with pytest.raises(ValueError, match="the threshold would be chosen on the test"):
        run()


def test_solutions_longer_than_the_model_are_refused_or_left_out_and_counted(words):
    write("dev", words, range(40))
    rows = write("test", words, range(40, 60))
    lines.write(
        Path("data/test/steps.jsonl"), [*rows, *write("other", words, range(60, 62), num_steps=20)]
    )
    with pytest.raises(ValueError, match="2 of 22 solutions have more tokens than the 64"):
        run()
    write_params("true")
    metrics, predictions = run()
    assert (metrics["left_out_long"], metrics["solutions"], len(predictions)) == (2, 20, 20)
