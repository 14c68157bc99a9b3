"""Everything that the report is made from, small, in the working folder."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from stages.algorithms.selection import votes
from stages.records import lines
from stages.records.episodes import Episode, StartProblem
from stages.records.pools import Completion, Score
from stages.records.problems import Prompt
from stages.records.temperatures import TemperatureResult
from stages.report import estimates
from stages.rewards import pool_scores, problem_evaluation
from stages.rewards.pool_scores import Aggregation

INPUTS = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml"))
ATTACK = "\n".join(
    INPUTS["attacks"] + ["\x1b[2J\x1b]0;run\x07\x9b31m \u202egnp.exe \u2066\ud83d", "#### 7"]
)
"""A right answer to the first problem: what a model could write to get out of its place."""
PLAN, MODEL = INPUTS["plan"], INPUTS["model"]
METRICS = INPUTS["metrics"]
"""Place -> metrics.json of each seed."""
NUM_PROBLEMS, NUM_SAMPLES, KS = 40, 8, [1, 2]
SEEDS = [0, 1, 2]
POLICIES = {"sft": 0.5, "dpo": 0.8, "grpo": 0.82}
"""Policy -> how often it is right."""
REWARDS = {"outcome": 1.5, "preference": -0.4}
"""Reward -> by how much it scores a right sample above a wrong one, in standard deviations."""


def write(seeds: list[int] = SEEDS, policies: dict[str, float] = POLICIES) -> None:
    """Write params.yaml and data/."""
    section = {"ks": KS, "num_draws": 20, "num_bootstrap": 200, "confidence": 0.95, "decimals": 5,
               "max_cut_share": 1.0}  # fmt: skip
    model = {"path": None, "revision": None}
    content = {"seeds": seeds, "baseline": "sft", "model": model, "engine": "transformers",
               "evaluation": section}  # fmt: skip
    Path("params.yaml").write_text(json.dumps(content), encoding="utf-8")
    pins = [f"{name}=={version(name)} ; x\n" for name in ("numpy", "torch")]
    Path("constraints.txt").write_text("".join(pins), encoding="utf-8")
    counts = {"train": 1200, "preference": 100, "dev": 30, "test": NUM_PROBLEMS}
    card = {"source": "word_problems", "quarantined": {"too long": 3}}
    write_json("prepared/data_card.json", card | {"counts": counts | {"demonstrations": 1300}})
    rows = {n: PLAN["policies"].get(n, PLAN["policies"]["dpo"]) for n in policies}
    write_json("plan.json", PLAN | {"policies": rows})
    prompts = [
        Prompt(id=f"p{at}", task="solve", question=f"How many p{at}? {ATTACK}", prompt="",
               prompt_ids=[1], answer="7")
        for at in range(NUM_PROBLEMS)
    ]  # fmt: skip
    lines.write_lines(Path("data/prompts/test.jsonl"), prompts)
    for seed in seeds:
        for at, (policy, rate) in enumerate(policies.items()):
            stream = np.random.default_rng([seed, at])
            write_policy(policy, seed, prompts, rate + stream.normal() * 0.02, stream)
        for place, metrics in METRICS.items():
            write_json(f"{place}/{seed}/metrics.json", metrics)
    write_json("rewards/rule/reward.json", {})


def write_policy(
    policy: str, seed: int, prompts: list[Prompt], rate: float, stream: np.random.Generator
) -> None:
    """Samples, the evaluation and the training of one policy and seed."""
    orders = votes.nested_subsets(NUM_SAMPLES, num_draws=20, seed=0)
    greedy, results = [], []
    for prompt in prompts:
        probability = float(np.clip(rate + stream.normal() * 0.2, 0.02, 0.98))
        right = stream.random(NUM_SAMPLES + 1) < probability
        pool = [completion(prompt.id, at, is_right=item) for at, item in enumerate(right[1:])]
        greedy.append(completion(prompt.id, 0, is_right=right[0]))
        if policy == "dpo":
            text = ATTACK if right[0] else ATTACK.replace("#### 7", "#### 8")
            greedy[-1] = completion(prompt.id, 0, is_right=right[0], text=text)
        scores = [
            Score(id=row.id, index=row.index, disagreement={},
                  scores={n: gap * is_right + stream.normal() for n, gap in REWARDS.items()},
                  steps={"process": [0.5 + 0.3 * is_right + 0.1 * stream.random()]})
            for row, is_right in zip(pool, right[1:], strict=True)
        ]  # fmt: skip
        choice = {"process": Aggregation(best_of="min", weighted="min")}
        views = pool_scores.score_pool(prompt, pool, scores, choice)
        samples = prompt, pool, greedy[-1], views
        results.append(problem_evaluation.evaluate_problem(*samples, ks=KS, orders=orders))
    lines.write_lines(Path(f"data/samples/{policy}/{seed}/test_greedy.jsonl"), greedy)
    folder = Path(f"data/evaluations/{policy}/{seed}")
    lines.write_lines(folder / "per_problem.jsonl", results)
    by_temperature = [
        TemperatureResult(
            id=row.id, file=file, split=split, temperature=temperature, num_samples=1,
            accuracy=accuracy, strict=accuracy, lenient=accuracy,
        )
        for split in ("dev", "dev", "test")  # 80 dev problems: enough to choose by
        for row in results
        for file, temperature, accuracy in (
            (split, 1.0, row.mean_accuracy), (f"{split}_greedy", 0.0, float(row.greedy_correct)),
            (f"{split}_at_0.5", 0.5, (3 * row.mean_accuracy + 1) / 4),
        )
    ]  # fmt: skip
    lines.write_lines(folder / "temperatures.jsonl", by_temperature)
    metrics = estimates.average_results(results) | {"dev_accuracy": round(rate, 3)}
    write_json(f"evaluations/{policy}/{seed}/metrics.json", metrics)
    trained = {"sft": ["loss/nll"], "dpo": ["loss/preference", "margin/accuracy", "kl/k1"]}
    names = trained.get(policy, ["reward/mean", "reward/accuracy", "kl/k1", "length/mean"])
    rows = []
    for at in range(12):
        values = {name: at * 0.1 + stream.random() for name in names}
        rows.append({"index": at, "metrics": values | {"optim/learning_rate": 1e-4}})
    config = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2}
    write_json(f"policies/{policy}/model/{seed}/config.json", config)
    path = Path(f"data/policies/{policy}/training/{seed}/history.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_episodes(environment: str, rates: dict[str, float], seeds: list[int] = SEEDS) -> None:
    """Two episodes from each of twelve starts by each policy, which is as often successful.

    Of each pair the first writes an attack, and the last start's second fails.
    """
    plan = json.loads(Path("data/plan.json").read_text(encoding="utf-8"))
    rows = plan.setdefault("episodes", {})
    environments = plan.setdefault("environments", {})
    environments[environment] = {"by": "own", "preset": "p", "from": "base", "on": "own/file"}
    for at, (policy, rate) in enumerate(rates.items()):
        name = f"{policy}-{environment}"
        rows[name] = {"by": "policy", "from": policy, "on": f"environments/{environment}",
                      "split": "test"}  # fmt: skip
        for seed in seeds:
            stream = np.random.default_rng([seed, at])
            episodes = [
                episode(f"s{start}", index, is_right=bool(stream.random() < rate),
                        failed=start == 11 and index == 1)
                for start in range(12)
                for index in range(2)
            ]  # fmt: skip
            lines.write_lines(Path(f"data/episodes/{name}/{seed}/episodes.jsonl"), episodes)
            starts = [StartProblem(id=f"s{at}", problem=f"{at}") for at in range(12)]
            lines.write_lines(Path(f"data/episodes/{name}/{seed}/starts.jsonl"), starts)
            write_json(f"episodes/{name}/{seed}/metrics.json", {"generated_tokens": 48})
    write_json("plan.json", plan)


def episode(start: str, index: int, *, is_right: bool, failed: bool = False) -> Episode:
    """A call of a calculator, its result, and an answer that is right or wrong."""
    arguments = {"expression": ATTACK if index == 0 else "3 + 4"}
    call = {"type": "function", "function": {"name": "calculator", "arguments": arguments}}
    tools = [{"type": "function", "function": {"name": "calculator"}}]
    return Episode(
        id=start, index=index, env_seed=1, num_start_messages=2, tools=tools,
        messages=[
            {"role": "system", "content": "Answer with a number."},
            {"role": "user", "content": f"What is 3 + 4, {start}?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "name": "calculator", "content": "7"},
            {"role": "assistant", "content": "7" if is_right else "8"},
        ],
        prompt_ids=[1], token_ids=[1, 2, 3], sampled=[(0, 1), (2, 3)],
        rewards=[0.0, float(is_right and not failed)], reward=float(is_right and not failed),
        success=is_right and not failed, ending="environment_error" if failed else "done",
        error="OSError: no connection" if failed else None,
    )  # fmt: skip


def write_json(place: str, content: Any) -> None:
    """A JSON file below data/."""
    path = Path("data") / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def completion(problem: str, index: int, *, is_right: bool, text: str | None = None) -> Completion:
    """One that is right or wrong, and of another length."""
    said = text or ("3 + 4 = 7\n#### 7" if is_right else "3 + 4 = 8\n#### 8")
    return Completion(id=problem, index=index, completion=said,
                      completion_ids=list(range(12 if is_right else 2 + index)),
                      logprob_sum=-1.0 - 0.1 * index, finish_reason="stop", seed=0)  # fmt: skip
