"""The table of experiments, from what DVC lists."""

import pytest

from flows.experiments import tabulate_experiments


def data(steps: int, **measures: dict[str, float]) -> dict[str, object]:
    params = {"params.yaml": {"data": {"seeds": [0, 1], "grpo": {"num_steps": steps}}}}
    metrics = {f"data/headlines/{name}.json": {"data": of} for name, of in measures.items()}
    return {"params": params, "metrics": metrics}


def experiment(name: str, content: object, state: str | None = None) -> dict[str, object]:
    executor = {"state": state} if state else None
    return {"name": name, "revs": [{"data": content}], "executor": executor}


BEFORE = data(4, accuracy={"sft": 60.0, "grpo": 90.5}, gain={"grpo": 30.5})
SHOWN = [
    {"rev": "workspace", "name": None, "data": BEFORE, "experiments": None},
    {
        "rev": "0123456789",
        "name": "main",
        "data": BEFORE,
        "experiments": [
            experiment("b", data(16, accuracy={"sft": 60.0, "grpo": 90.5}), "running"),
            experiment("a", data(8, accuracy={"sft": 60.0, "grpo": 92.25})),
        ],
    },
]


def test_a_row_an_experiment_with_what_it_changed_and_no_number_before_it_ended():
    assert tabulate_experiments(SHOWN) == ("accuracy", [
        {"experiment": "main", "grpo.num_steps": "4", "sft": "60", "grpo": "90.5"},
        {"experiment": "a", "grpo.num_steps": "8", "sft": "60", "grpo": "92.25"},
        {"experiment": "b (running)", "grpo.num_steps": "16"},
    ])  # fmt: skip


def test_another_measure():
    measure, rows = tabulate_experiments(SHOWN, "gain")
    assert (measure, rows[0]["grpo"]) == ("gain", "30.5")
    assert "grpo" not in rows[1]
    with pytest.raises(ValueError, match="accuracy, gain"):
        tabulate_experiments(SHOWN, "gane")
