"""Stored completions, rewarded again by another reward: what would it have paid?

    python -m stages.rescore grpo                                the reward that it learned from
    python -m stages.rescore grpo --reward presets/rule          a rule of presets.yaml as it is now
    python -m stages.rescore grpo --reward own/brevity           a file in stages/rewards/own/
    python -m stages.rescore pools/sft --reward rewards/process  a row of `rewards`, also a model
    ... --out folder       every completion with both rewards, a row a line, and report.md

Of a policy that PPO or GRPO trained, the completions of its rollouts, step by step as they were
rewarded; the old reward is the one that it learned from. Of a pool, its completions; the old reward
is the answer checker's verdict, 1 or 0. The same reward gives the same numbers to the last digit.
Nothing depends on it, and what DVC keeps is not changed.
"""

import argparse
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import stats

from stages.config import Params
from stages.loops import rollout_rewards
from stages.loops.method import GroupRlConfig, PpoConfig
from stages.loops.rollouts import Rollout, Rollouts
from stages.models.device import ComputeConfig, setup
from stages.params import load_config, load_preset
from stages.records import lines, pools
from stages.records.problems import Prompt
from stages.report import markdown
from stages.rewards import answer_checker, reward_file
from stages.rewards.completion_rewards import CompletionRewards, RewardModels
from stages.rewards.composition import Composition, compose_rewards
from stages.rows import DATA, PROMPTS
from stages.runtime import outputs, process
from stages.sampler import Sample

logger = logging.getLogger(__name__)

POOLS, PRESETS, REWARDS = "pools/", "presets/", "rewards/"
TRAINED_BY = ("ppo", "grpo")
MAX_TEXT = 300
"""Characters of a question and of a completion that the report shows."""
ROW_KEYS = ("train", "preset", "from", "on")
NUM_SHOWN = 5
NUM_PARTS = 8
"""Parts of a training run in the table of means."""
Reward = Callable[[Rollouts], CompletionRewards]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescored:
    """A completion with both rewards: a row of `rescored.jsonl`."""

    seed: int
    step: int
    """Rollout batch of the training; of a pool 0."""
    id: str
    index: int
    question: str
    completion: str
    correct: bool | None
    """The answer checker's verdict; None: there is no gold answer."""
    old: float
    new: float


class Config(Params):
    """Keys of params.yaml that are read."""

    seeds: list[int]
    compute: ComputeConfig


class GrpoSizes(Params):
    """Sizes of `train: grpo`."""

    grpo: GroupRlConfig


class PpoSizes(Params):
    """Sizes of `train: ppo`."""

    ppo: PpoConfig


class PoolSizes(Params):
    """Sizes of pools, by split."""

    sampling: dict[str, dict[str, Any]]


def main(*words: str) -> None:
    """Print the report; with `--out`, write it and every completion to a new folder."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(prog="python -m stages.rescore", allow_abbrev=False)
    parser.add_argument("name", metavar="policy | pools/<pool>")
    parser.add_argument("--reward", metavar="rewards/<row> | presets/<name> | own/<file>")
    parser.add_argument("--out", type=Path, metavar="folder")
    arguments = parser.parse_args(words)
    if arguments.out is not None and arguments.out.exists():
        raise ValueError(f"{arguments.out} exists: name a folder that does not")
    config = load_config(Config)
    reward_name = arguments.reward or find_reward(arguments.name)
    rows = [
        row for seed in config.seeds for row in rescore(arguments.name, reward_name, seed, config)
    ]
    report = render_report(arguments.name, reward_name, rows)
    logger.info("%s", report)
    if arguments.out is not None:
        with outputs.replace(arguments.out) as folder:
            folder.mkdir(parents=True)
            lines.write_lines(folder / "rescored.jsonl", rows)
            (folder / "report.md").write_text(report, encoding="utf-8")


def find_reward(name: str) -> str:
    """The reward that a policy learned from, `rewards/<row>`."""
    if name.startswith(POOLS):
        raise ValueError(f"{name} was not sampled for a reward: name one by --reward rewards/<row>")
    return str(find_policy(name)["on"])


def find_policy(name: str) -> dict[str, Any]:
    """The row of a policy that PPO or GRPO trained on a reward."""
    plan = read_json(DATA / "plan.json")
    rewarded = {
        policy: row for policy, row in plan["policies"].items()
        if row["train"] in TRAINED_BY and str(row["on"]).startswith(REWARDS)
    }  # fmt: skip
    if name not in rewarded:
        names = [*rewarded, *(f"{POOLS}{pool}" for pool in plan["pools"])]
        raise ValueError(
            f"expected a policy that PPO or GRPO trained on a reward, or a pool "
            f"({', '.join(names)}), found {name}"
        )
    return rewarded[name]


def read_json(path: Path) -> Any:
    """A JSON file of the run; a ValueError with the remedy where it is missing."""
    if not path.is_file():
        raise ValueError(f"{path} is missing: `dvc repro` makes it, `dvc checkout` restores it")
    return json.loads(path.read_text(encoding="utf-8"))


def rescore(name: str, reward_name: str, seed: int, config: Config) -> list[Rescored]:
    """Every stored completion of a seed with its old and new reward.

    Both are rounded to six digits, as rollouts.jsonl has them.
    """
    is_pool = name.startswith(POOLS)
    batches = read_pool(name, seed) if is_pool else read_rollouts(name, seed)
    reward = load_reward(reward_name, seed, config.compute, find_length_limit(name))
    rows = list[Rescored]()
    for stored, batch in batches:
        totals = reward(batch).rewards().tolist()
        rows += [
            Rescored(
                seed=seed, step=row.step, id=row.id, index=row.index,
                question=batch.prompt(place).question, completion=row.completion,
                correct=row.correct, old=row.reward, new=round(total, 6),
            )
            for place, (row, total) in enumerate(zip(stored, totals, strict=True))
        ]  # fmt: skip
    return rows


def find_length_limit(name: str) -> int:
    """`max_new_tokens` of the completions, which rewards of length count from."""
    if name.startswith(POOLS):
        split = read_json(DATA / name / "pool.json")["split"]
        return int(load_config(PoolSizes).sampling[split]["max_new_tokens"])
    row = find_policy(name)
    section = row["train"]
    sizes = {section: {key: value for key, value in row.items() if key not in ROW_KEYS}}
    if section == "grpo":
        return load_config(GrpoSizes, sizes=sizes).grpo.max_new_tokens
    return load_config(PpoSizes, sizes=sizes).ppo.max_new_tokens


def read_rollouts(policy: str, seed: int) -> Iterator[tuple[list[Rollout], Rollouts]]:
    """Rollout batches of a policy's training."""
    prompts = read_prompts("train")
    path = DATA / f"policies/{policy}/training/{seed}/rollouts.jsonl"
    if not path.is_file():
        raise ValueError(f"{path} is missing: `dvc repro` makes it, `dvc checkout` restores it")
    for _, batch in groupby(lines.read_lines(path, Rollout), key=lambda row: row.step):
        stored = list(batch)
        yield stored, join_batch(stored, prompts)


def read_pool(name: str, seed: int) -> Iterator[tuple[list[Rollout], Rollouts]]:
    """Completions of a pool, a batch for each problem; their reward is the checker's verdict."""
    for prompt, completions in pools.read_pools(DATA / name, seed, "train"):
        stored = [
            Rollout(
                step=0, id=row.id, index=row.index, completion=row.completion,
                completion_ids=row.completion_ids, finish_reason=row.finish_reason,
                reward=float(is_right), correct=None if prompt.answer is None else is_right,
            )
            for row in completions
            for is_right in [answer_checker.solves_problem(prompt, row.completion)]
        ]  # fmt: skip
        yield stored, join_batch(stored, {prompt.id: prompt})


def read_prompts(split: str) -> dict[str, Prompt]:
    """Prompts of a split by their ids."""
    return {row.id: row for row in lines.read_lines(PROMPTS / f"{split}.jsonl", Prompt)}


def join_batch(stored: Sequence[Rollout], prompts: dict[str, Prompt]) -> Rollouts:
    """The completions as a rollout batch, of which log-probs are not known (0)."""
    ids = dict.fromkeys(row.id for row in stored)
    places = {prompt_id: place for place, prompt_id in enumerate(ids)}
    return Rollouts(
        prompts=[prompts[prompt_id] for prompt_id in ids],
        groups=[places[row.id] for row in stored],
        numbers=[row.index for row in stored],
        samples=[
            Sample(
                token_ids=row.completion_ids,
                logprobs=[0.0] * len(row.completion_ids),
                finish_reason=row.finish_reason,
            )
            for row in stored
        ],
        texts=[row.completion for row in stored],
    )


def load_reward(name: str, seed: int, compute: ComputeConfig, max_new_tokens: int) -> Reward:
    """Reward function by its name: a row of `rewards`, a preset of `by: rule`, or a function."""
    if name.startswith(REWARDS):
        return rollout_rewards.load_reward(
            DATA / name, seed, compute, setup(compute), max_new_tokens
        )
    function, own = None, name.removeprefix(reward_file.OWN)
    if name.startswith(PRESETS):
        composition = Composition.model_validate(load_preset(name.removeprefix(PRESETS)))
        if composition.needs_model() or "own" in composition.kinds():
            raise ValueError(
                f"{name} asks a model or a function: make it a row of `rewards`, run `dvc repro`, "
                f"and name {REWARDS}<row>"
            )
    elif name.startswith(reward_file.OWN):
        function = reward_file.load_own_function(own)
        part = {"value": {"kind": "own"}, "weight": 1.0, "cap": None, "normalise": "none"}
        content = {"components": {own: part}, "combine": "sum"}
        composition = Composition.model_validate(content)
    else:
        forms = f"{REWARDS}<row>, {PRESETS}<name> or {reward_file.OWN}<file>"
        raise ValueError(f"expected a reward, {forms}, found {name}")
    models = RewardModels(function=function, max_new_tokens=max_new_tokens)
    return lambda batch: compose_rewards(composition, batch, models)


# --- The report


def render_report(name: str, reward_name: str, rows: Sequence[Rescored]) -> str:
    """Means and rank correlation of both rewards, and completions that change sides."""
    old, new = (np.array([getattr(row, key) for row in rows]) for key in ("old", "new"))
    flips = find_flips(rows)
    meaning = "the answer checker's verdict" if name.startswith(POOLS) else "the reward of training"
    equal = int((old == new).sum())
    parts = [
        f"# {name}, rewarded by {reward_name}",
        f"Old is {meaning}, new is {reward_name}. {equal:,} of {len(rows):,} completions have the "
        f"same reward; rank correlation (Spearman) {describe_correlation(old, new)}.",
        markdown.render_table(
            ["seed", "steps", "old, mean", "new, mean", "rank correlation", "change sides, %"],
            list(tabulate_means(rows, {id(row) for row in flips})),
        ),
        f"{len(flips):,} completions change sides: above the mean of their group by one reward, "
        f"below it by the other.",
    ]
    if flips:
        largest = sorted(flips, key=lambda row: (-abs(row.new - row.old), row.seed, row.step))
        parts += ["## Largest changes among them", *map(describe, largest[:NUM_SHOWN])]
    return "\n\n".join(parts) + "\n"


def describe_correlation(
    old: Float[np.ndarray, " completion"], new: Float[np.ndarray, " completion"]
) -> str:
    """Spearman's rank correlation in words: none where a reward does not vary."""
    if len(old) < 2 or np.ptp(old) == 0 or np.ptp(new) == 0:
        return "is not defined: a reward is the same for all"
    result: Any = stats.spearmanr(old, new)
    return f"{result.statistic:.3f}"


def tabulate_means(rows: Sequence[Rescored], flips: set[int]) -> Iterator[list[str]]:
    """A row for each seed, and for each part of its training."""
    for seed, of_seed in groupby(rows, key=lambda row: row.seed):
        batch = list(of_seed)
        yield tabulate_part(str(seed), "all", batch, flips)
        last = batch[-1].step
        edges = np.unique(np.linspace(0, last + 1, min(NUM_PARTS, last + 1) + 1).astype(int))
        for start, end in pairwise(edges) if last else ():
            part = [row for row in batch if start <= row.step < end]
            steps = str(end) if end == start + 1 else f"{start + 1}-{end}"
            yield tabulate_part("", steps, part, flips)


def tabulate_part(seed: str, steps: str, rows: Sequence[Rescored], flips: set[int]) -> list[str]:
    """A row of the table: means of both rewards, their correlation, the share that flips."""
    old, new = (np.array([getattr(row, key) for row in rows]) for key in ("old", "new"))
    correlation = describe_correlation(old, new)
    share = sum(id(row) in flips for row in rows) / len(rows)
    return [
        seed, steps, f"{old.mean():.4f}", f"{new.mean():.4f}",
        correlation if correlation[0].isdigit() or correlation[0] == "-" else "",
        f"{100 * share:.1f}",
    ]  # fmt: skip


def find_flips(rows: Iterable[Rescored]) -> list[Rescored]:
    """Completions above the mean of their group by one reward and below it by the other.

    A group are the completions of a problem in a step: so the sign of a group advantage flips.
    """
    groups: dict[tuple[int, int, str], list[Rescored]] = {}
    for row in rows:
        groups.setdefault((row.seed, row.step, row.id), []).append(row)
    flips = list[Rescored]()
    for group in groups.values():
        old, new = (np.array([getattr(row, key) for row in group]) for key in ("old", "new"))
        changes = (old - old.mean()) * (new - new.mean()) < 0
        flips += [row for row, is_flip in zip(group, changes, strict=True) if is_flip]
    return flips


def describe(row: Rescored) -> str:
    """A completion with both rewards, as a quotation."""
    question, completion = (
        text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + " ..."
        for text in (row.question, row.completion)
    )  # fmt: skip
    verdict = {True: "right", False: "wrong", None: "no gold answer"}[row.correct]
    quoted = "\n".join(f"    {line}" for line in f"{question}\n\n{completion}".splitlines())
    return (
        f"`{row.id}`, seed {row.seed}, step {row.step + 1}, sample {row.index} ({verdict}): "
        f"{row.old:g} -> {row.new:g}\n\n{quoted}"
    )


if __name__ == "__main__":
    process.run(main)
