import json
from pathlib import Path

import pytest

from stages import choose_aggregation
from stages.records import lines
from stages.records.pools import Completion, Score
from stages.records.problems import Prompt
from stages.rewards import aggregation
from stages.rewards.aggregation import Aggregation

PARAMS = "seed: 0\nchoose_aggregation: {n: 2, num_draws: 8}\n"
STEPS = {"7": [0.8, 0.4], "8": [0.1, 0.5, 0.75, 0.5]}
"""The right one has the lower last score, and the higher one by every other kind."""
OUTPUT = choose_aggregation.OUTPUT / "sft"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(PARAMS, encoding="utf-8")
    write(STEPS)


def write(steps):
    prompt = Prompt(id="p", task="solve", question="", prompt="", prompt_ids=[1], answer="7")
    lines.write(choose_aggregation.PROMPTS, [prompt])
    pool = [
        Completion(
            id="p", index=index, completion=f"#### {answer}", completion_ids=[1], logprob_sum=-1.0,
            finish_reason="stop", seed=0,
        )
        for index, answer in enumerate(STEPS)
    ]  # fmt: skip
    lines.write(Path("data/sample_candidates/sft-dev/pool.jsonl"), pool)
    scores = [
        Score(id="p", index=index, scores={}, disagreement=None, steps=own)
        for index, own in enumerate(steps.values())
    ]
    lines.write(Path("data/score_candidates/sft-dev/scores.jsonl"), scores)


def run():
    choose_aggregation.main("sft", "sft-dev", "score_candidates/sft-dev/scores")


def test_the_most_accurate_kind_is_chosen_and_the_first_of_equals():
    run()
    choice = aggregation.read(OUTPUT / "choice.json")
    assert choice == Aggregation(best_of="min", weighted="min")
    metrics = json.loads((OUTPUT / "metrics.json").read_text(encoding="utf-8"))
    assert (metrics["num_problems"], metrics["n"]) == (1, 2)
    assert metrics["best_of"] == {"last": 0.0, "min": 1.0, "product": 1.0, "mean": 1.0}


def test_more_samples_than_there_are_and_a_pool_without_scores_of_steps_are_refused():
    Path("params.yaml").write_text(PARAMS.replace("n: 2", "n: 3"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"at most 2.*found 3.*num_samples"):
        run()
    Path("params.yaml").write_text(PARAMS, encoding="utf-8")
    write({"7": None, "8": None})
    with pytest.raises(ValueError, match="expected scores of steps, found none"):
        run()


def test_a_second_run_writes_the_same_bytes():
    written = []
    for _ in range(2):
        run()
        written.append([path.read_bytes() for path in sorted(OUTPUT.glob("*.json"))])
    assert written[0] == written[1]
