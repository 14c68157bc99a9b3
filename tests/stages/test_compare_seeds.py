import json

import planned_copies
import pytest

from stages import compare_seeds
from stages.records import lines
from stages.records.results import SeedResult

RIGHT = {"sft": [0, 1, 2, 0], "dpo": [1, 2, 3, 1], "ppo": [2, 1, 0, 4], "grpo": [2, 3, 4, 2]}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        copy = tmp_path / f"copies/seed-{seed}"
        planned_copies.write_plan(copy)
        planned_copies.write_costs(copy)
        planned_copies.write_pools(copy, RIGHT)
    return tmp_path


def run(policies="dpo,ppo,grpo", seeds="0,1"):
    compare_seeds.main("tried", policies, seeds, "1000", "copies")
    return json.loads((compare_seeds.OUTPUT / "tried/metrics.json").read_text(encoding="utf-8"))


def test_the_numbers_are_those_of_the_pools():
    found = run()
    # means of 4 problems with 4 samples; grpo is right once more than dpo on every problem
    assert {name: one["mean"]["value"] for name, one in found["policies"].items()} == {
        "sft": 3 / 16, "dpo": 7 / 16, "ppo": 7 / 16, "grpo": 11 / 16,
    }  # fmt: skip
    assert found["policies"]["sft"]["greedy"]["value"] == 0.5
    pair = next(
        row for row in found["pairs"]["mean"] if (row["first"], row["second"]) == ("grpo", "dpo")
    )
    assert (pair["value"], pair["low"], pair["resolved"]) == (0.25, 0.25, True)
    text = (compare_seeds.OUTPUT / "tried/verdict.md").read_text(encoding="utf-8")
    assert "**grpo beats dpo** by 25.0 points [25.0, 25.0]" in text


def test_every_row_can_be_counted_again():
    run()
    rows = list(lines.read(compare_seeds.OUTPUT / "tried/per_problem.jsonl", SeedResult))
    assert len(rows) == 4 * 2 * 4
    assert [row.num_correct for row in rows if (row.policy, row.seed) == ("ppo", 1)] == RIGHT["ppo"]


def test_what_was_spent_is_what_the_entries_say():
    spent = {(row["policy"], row["seed"]): row for row in run()["spent"]}
    assert len(spent) == 6
    assert [spent[name, 0]["before"] for name in ("dpo", "ppo", "grpo")] == [300, 400, 0]
    assert [spent[name, 1]["total"] for name in ("dpo", "ppo", "grpo")] == [950, 1020, 1020]
    assert spent["dpo", 0]["overshoot"] == -0.05
    # pool, reference log-probs and training; each took 2 seconds
    assert spent["dpo", 0]["seconds"] == 6.0


def test_one_seed_is_enough_and_says_so():
    assert run(seeds="1")["num_seeds"] == 1
    text = (compare_seeds.OUTPUT / "tried/verdict.md").read_text(encoding="utf-8")
    assert "nothing of another training run" in text


def test_seeds_with_other_problems_are_refused(folder):
    planned_copies.write_pools(
        folder / "copies/seed-1", {name: numbers[:3] for name, numbers in RIGHT.items()}
    )
    with pytest.raises(SystemExit, match="the same test problems for every seed"):
        run()
