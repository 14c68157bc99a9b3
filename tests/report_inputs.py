"""Everything that the report page is made from, small, in the working folder."""

import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from ruamel.yaml import YAML
from stages.recipe import TABLES

from stages.records import lines
from stages.records.pools import Completion, Rollout, Score
from stages.records.problems import Prompt

ATTACK = '<script>document.title = "run"</script>\n# big\n![x](http://127.0.0.1:9/x.png)\n#### 7'
"""A right answer to the first problem: what a model could write to get out of its card."""
NUM_PROBLEMS, NUM_SAMPLES = 40, 8
POLICIES = {"sft": 0.5, "dpo": 0.8, "grpo": 0.3}
"""Policy -> how often it is right."""
REPORT = """# Policies compared

Numbers with <b>no HTML</b>.

| policy | accuracy |
| --- | ---: |
| sft | 50.0 % |

## Plots

![a line](plots/line.png)
"""


def write() -> None:
    """Write params.yaml and data/."""
    Path("params.yaml").parent.mkdir(exist_ok=True)
    with Path("params.yaml").open("w", encoding="utf-8") as file:
        YAML().dump(parameters(), file)
    ids = [f"p{number}" for number in range(NUM_PROBLEMS)]
    prompts = [
        Prompt(id=name, task="solve", question=f"How many {name}?", prompt="", prompt_ids=[1],
               answer="7")
        for name in ids
    ]  # fmt: skip
    data = Path("data")
    lines.write(data / "prepare_data/prompts/test.jsonl", prompts)
    stream = np.random.default_rng(0)
    for policy, rate in POLICIES.items():
        pool = [
            completion(name, index, is_right=bool(stream.random() < rate))
            for name in ids
            for index in range(NUM_SAMPLES)
        ]
        greedy = [completion(name, 0, is_right=bool(stream.random() < rate)) for name in ids]
        if policy == "dpo":
            greedy = [attack(row) for row in greedy]
        folder = data / f"sample_candidates/{policy}-test"
        lines.write(folder / "pool.jsonl", pool)
        lines.write(folder / "greedy.jsonl", greedy)
        scores = [
            Score(
                id=row.id,
                index=row.index,
                scores={"reward_model": row.completion.count("#") + stream.normal()},
                disagreement=None,
                steps=None,
            )
            for row in pool
        ]
        lines.write(data / f"score_candidates/{policy}/scores.jsonl", scores)
    rollouts = [
        Rollout(step=step, id=f"p{problem}", index=index, completion="#### 7",
                completion_ids=[1, 2, 3], finish_reason="stop", reward=float(index % 2 + step),
                correct=index > 0)
        for step in range(3) for problem in range(2) for index in range(4)
    ]  # fmt: skip
    lines.write(data / "train_grpo/grpo/rollouts.jsonl", rollouts)
    journal("train_grpo/grpo", {"kl/k1": 0.01, "entropy": 0.5, "optim/grad_norm": 1.0})
    journal("train_dpo/dpo", {"loss/preference": 0.6, "tokens/trained": 9.0})
    report(data / "compare_policies")


def parameters() -> dict[str, object]:
    """The content of params.yaml."""
    policy = "train_sft/sft/policy"
    plan: dict[str, object] = {table: {} for table in TABLES}
    plan["train_sft"] = {"sft": {"preset": "s", "start": "prepare_data/tokenizer",
                                 "demonstrations": "prepare_data"}}  # fmt: skip
    plan["train_dpo"] = {"dpo": {"preset": "dpo", "start": policy, "pairs": "label_preferences/x",
                                 "reference": "sft"}}  # fmt: skip
    plan["train_grpo"] = {"grpo": {"preset": "g", "start": policy, "reward": "rule",
                                   "scorer": "no_model", "own": "none"}}  # fmt: skip
    plan["sample_candidates"] = {
        f"{name}-test": {"policy": f"train_{name}/{name}/policy", "split": "test"}
        for name in POLICIES
    }
    plan["score_candidates"] = {
        name: {
            "pool": f"{name}-test",
            "split": "test",
            "ensemble": "no_model",
            "reward_model": "train_reward_model/m/reward_model",
            "outcome": "no_model",
            "process": "no_model",
        }
        for name in POLICIES
    }
    plan["evaluate_policy"] = {
        name: {"pool": f"{name}-test", "scores": f"score_candidates/{name}/scores",
               "aggregation": "no_choice"}
        for name in POLICIES
    }  # fmt: skip
    quality = {"num_bins": 2, "binning": "equal_mass", "length_tolerance": 1, "length_edges": [0],
               "num_bootstrap": 200, "confidence": 0.95}  # fmt: skip
    return {
        "seed": 0,
        "plan": plan | {"baseline": "sft"},
        "reward_quality": quality,
        "write_report": {"reports": ["compare_policies"], "disagreeing": 2, "drawn": 1},
    }


def completion(problem: str, index: int, *, is_right: bool) -> Completion:
    text = "3 + 4 = 7\n#### 7" if is_right else "8"
    return Completion(id=problem, index=index, completion=text,
                      completion_ids=list(range(12 if is_right else 2 + index)), logprob_sum=-1.0,
                      finish_reason="stop", seed=0)  # fmt: skip


def attack(row: Completion) -> Completion:
    return Completion(id=row.id, index=0, completion=ATTACK, completion_ids=[1], logprob_sum=-1.0,
                      finish_reason="stop", seed=0)  # fmt: skip


def journal(entry: str, metrics: dict[str, float]) -> None:
    path = Path(f"data/{entry}/run/journal.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"index": step, "metrics": metrics, "time": 1e9 + step} for step in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def report(folder: Path) -> None:
    (folder / "plots").mkdir(parents=True)
    (folder / "report.md").write_text(REPORT, encoding="utf-8")
    line(folder / "plots/line.png")


def line(path: Path) -> None:
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, 1], [0, 1])
    figure.savefig(path, format="png")
