"""Study of the families of reasoning-gym that are reliable enough for results.

    python -m studies.reasoning_gym            # writes studies/reasoning_gym.md

Measures every family with its default parameters, on `NUM_ITEMS` items of seed 0 (`NUM_SLOW` of the
slowest families), made by two processes with different PYTHONHASHSEED. The lists in
`stages/sources/reasoning_gym.yaml` are its results. It reads no run, and is not a stage of DVC.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from stages.rewards import answer_checker
from stages.sources.reasoning_gym import VERSION, Item, open_family
from studies.study import render

NUM_ITEMS, NUM_SLOW = 40, 10
SLOW = ("futoshiki", "knight_swap", "zebra_puzzles")
NUM_JUDGED, NUM_OTHERS = 20, 3
"""Number of items whose answers are judged, and of other items' answers that each is tried with."""
SEVERAL = ("palindrome_generation",)
"""Families whose questions themselves allow other right answers than the stored one."""
DECIMALS = re.compile(r"\d+\.\d{3,}")
PAGE = Path("studies/reasoning_gym.md")
HASH_SEEDS = ("1", "2")
NO_ANSWERS = ("xyzzy", "I do not know.", "a b c", "x = y")
"""Texts that answer no question of any family."""


def list_families() -> list[str]:
    """Names of all families except the one composed of others."""
    from reasoning_gym.factory import DATASETS  # pyright: ignore[reportMissingImports]

    return sorted(set(DATASETS) - {"composite"})


def make_items(name: str, seed: int = 0) -> list[Item]:
    """Items to measure."""
    dataset = open_family(name, {}, seed)
    with contextlib.redirect_stdout(io.StringIO()):
        return [dataset[index] for index in range(NUM_SLOW if name in SLOW else NUM_ITEMS)]


def describe_items(items: Sequence[Item]) -> list[str]:
    """Question and answer of each item as text."""
    return [f"{item['question']}\n{item['answer']!r}" for item in items]


def score(dataset: Any, text: str, item: Item) -> float | str:
    """The package's score of a text, or the exception that it raised."""
    try:
        return float(dataset.score_answer(text, item))
    except Exception as error:  # noqa: BLE001 - what it raises is what is measured
        return type(error).__name__


def measure_family(name: str) -> dict[str, Any]:
    """Measurements of a family that need only one process."""
    items, shifted = make_items(name), make_items(name, seed=1)
    dataset = open_family(name, {}, 0)
    pairs = zip(items[1:], shifted[:-1], strict=True)
    of_nothing = [score(dataset, text, item) for text in NO_ANSWERS for item in items[:10]]
    paid = [value for value in of_nothing if not isinstance(value, str)]
    answers = [item["answer"] for item in items]
    has_answers = all(isinstance(answer, str) and answer for answer in answers)
    within = [score(dataset, f"{item['answer']} or not", item) for item in items[:10]]
    return {
        "num_items": len(items),
        "shifted": sum(left["question"] == right["question"] for left, right in pairs)
        / (len(items) - 1),
        "repeated": len(items) - len({item["question"] for item in items}),
        "has_answers": any(isinstance(answer, str) and answer for answer in answers),
        "for_nothing": max(paid, default=0.0),
        "raised": sorted({value for value in of_nothing if isinstance(value, str)}),
        "within": max((value for value in within if not isinstance(value, str)), default=0.0),
        "agreement": measure_agreement(dataset, items[:NUM_JUDGED]) if has_answers else None,
    }


def measure_agreement(dataset: Any, items: Sequence[Item]) -> float:
    """Share of pairs of question and answer on which checker and package agree.

    Each question is paired with its answer, that answer with two decimals, and the answers of the
    next items. 0 if the checker cannot parse an answer, or if either rejects a question's own
    answer.
    """
    same = total = 0
    for index, item in enumerate(items):
        gold = answer_checker.read_gold(item["answer"])
        if gold is None or score(dataset, item["answer"], item) != 1:
            return 0.0
        answers = [items[(index + other) % len(items)]["answer"] for other in range(NUM_OTHERS + 1)]
        answers.append(DECIMALS.sub(lambda number: f"{float(number[0]):.2f}", answers[0]))
        verdicts = [answer_checker.is_correct(f"#### {answer}", gold) for answer in answers]
        if not verdicts[0]:
            return 0.0
        scores = [score(dataset, answer, item) == 1 for answer in answers]
        same += sum(verdict == score for verdict, score in zip(verdicts, scores, strict=True))
        total += len(answers)
    return same / total


def measure(work: str) -> None:
    """Write to standard output, as JSON, `describe_items` or `measure_family` of each family."""
    functions: Mapping[str, Callable[[str], Any]] = {
        "describe": lambda name: describe_items(make_items(name)),
        "measure": measure_family,
    }
    result = dict[str, Any]()
    for name in list_families():
        sys.stderr.write(f"{work} {name}\n")
        result[name] = functions[work](name)
    sys.stdout.write(json.dumps(result))


def run_measurement(work: str, hash_seed: str) -> dict[str, Any]:
    """`measure` in a process with this PYTHONHASHSEED."""
    command = [sys.executable, "-m", "studies.reasoning_gym", work]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)


def classify(measured: Mapping[str, Mapping[str, Any]]) -> dict[str, set[str]]:
    """Lists for `stages/sources/reasoning_gym.yaml`, from the measurements."""
    lists = {
        "HASH_SEED": {name for name, row in measured.items() if row["varies"]},
        "NO_ANSWER": {name for name, row in measured.items() if not row["has_answers"]},
        "ANY_TEXT": {name for name, row in measured.items() if row["for_nothing"] == 1},
        "RAISES": {name for name, row in measured.items() if row["raised"]},
    }
    refused = lists["HASH_SEED"] | lists["ANY_TEXT"] | {*SEVERAL}
    return lists | {
        "CHECKED": {name for name, row in measured.items() if row["agreement"] == 1} - refused
    }


def main() -> None:
    """Measure all families, and write the page."""
    with ThreadPoolExecutor(2) as pool:
        measurement = pool.submit(run_measurement, "measure", HASH_SEEDS[0])
        described = list(pool.map(lambda seed: run_measurement("describe", seed), HASH_SEEDS))
        measured = measurement.result()
    for name, row in measured.items():
        first, other = (items[name] for items in described)
        num_differing = sum(left != right for left, right in zip(first, other, strict=True))
        row["varies"] = num_differing / len(first)
    PAGE.write_text(write_page(measured), encoding="utf-8")
    sys.stdout.write(f"{json.dumps({k: sorted(v) for k, v in classify(measured).items()})}\n")


def write_page(measured: Mapping[str, Mapping[str, Any]]) -> str:
    """Text of the page: the number of families with each defect, and a row for each family."""
    return render(
        "reasoning_gym", measured=measured, lists=classify(measured), version=VERSION,
        num_items=NUM_ITEMS, num_slow=NUM_SLOW, num_judged=NUM_JUDGED, num_others=NUM_OTHERS,
        several=SEVERAL,
    )  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1])
    else:
        main()
