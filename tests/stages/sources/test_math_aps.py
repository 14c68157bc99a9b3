import json
from pathlib import Path

import pytest

from stages.records.steps import RawSteps
from stages.sources import math_aps, step_files
from stages.sources.quarantine import RejectedError

SAMPLES = Path(__file__).parents[4] / "shared/data/prm_format_samples"
TREE = {"text": "q", "mc_value": 0.5, "children": [
    {"text": "a", "mc_value": 0.75, "children": [
        {"text": "b \\boxed{1}", "mc_value": 1.0, "children": []},
        {"text": "c", "mc_value": 0.25, "children": [
            {"text": "d \\boxed{2}", "mc_value": 0.0, "children": []}]}]},
    {"text": "e", "mc_value": 0.0, "children": []}]}  # fmt: skip


def config(**changes: object) -> math_aps.MathApsConfig:
    numbers = {"labels": "soft", "hard_above": 0.0, "num_completions": 4, "shared_steps": "once"}
    return math_aps.MathApsConfig.model_validate({"kind": "math_aps", **numbers, **changes})


def read(nodes: object, **changes: object) -> list[RawSteps]:
    row = {"question": "q", "reasoning_steps": nodes}
    return config(**changes).solutions(row, 2)


def listed(node: dict, before: str = "") -> list[dict]:
    """The second form of the same tree, the deepest nodes first."""
    prefix = f"{before}\n\n{node['text']}" if before else node["text"]
    below = [entry for child in node["children"] for entry in listed(child, prefix)]
    return [*below, {"solution_prefix": prefix, "mc_value": node["mc_value"]}]


def test_every_path_to_a_leaf_is_a_solution():
    result = read(TREE)
    assert [row.steps for row in result] == [
        ["a", "b \\boxed{1}"],
        ["a", "c", "d \\boxed{2}"],
        ["e"],
    ]
    assert [row.labels for row in result] == [[0.75, 1.0], [None, 0.25, 0.0], [0.0]]
    assert [(row.finished, row.correct) for row in result] == [
        (True, True),
        (True, False),
        (False, None),
    ]
    assert result[1].num_completions == [4, 4, 4]


def test_a_shared_step_counts_once_or_in_each_solution():
    assert [row.labels for row in read(TREE, shared_steps="repeat")] == [
        [0.75, 1.0],
        [0.75, 0.25, 0.0],
        [0.0],
    ]


def test_a_hard_label_is_one_above_the_threshold():
    hard = read(TREE, labels="hard", shared_steps="repeat")
    assert [row.labels for row in hard] == [[1.0, 1.0], [1.0, 1.0, 0.0], [0.0]]
    strict = read(TREE, labels="hard", hard_above=0.25, shared_steps="repeat")
    assert strict[1].labels == [1.0, 0.0, 0.0]


def test_both_forms_hold_the_same_tree():
    def sorted_steps(rows: list[RawSteps]) -> list[tuple[list[str], list[float | None]]]:
        return sorted((row.steps, row.labels) for row in rows)

    for nodes in (listed(TREE), listed(TREE)[::-1]):
        assert sorted_steps(read(nodes, shared_steps="repeat")) == sorted_steps(
            read(TREE, shared_steps="repeat")
        )


def test_estimates_of_one_text_are_averaged_over_all_their_completions():
    twice = [{"solution_prefix": "qa", "mc_value": value} for value in (1.0, 0.5)]
    (row,) = read([{"solution_prefix": "q", "mc_value": 0.5}, *twice])
    assert (row.labels, row.num_completions) == ([0.75], [8])
    assert read(twice, labels="hard", hard_above=0.75)[0].labels == [0.0]


def test_a_text_that_goes_on_in_the_middle_of_a_word_is_no_child():
    steps = (" x = 1", " x = 12", " x = 12.", " x = 12 so")
    result = read([{"solution_prefix": f"q{step}", "mc_value": 0.5} for step in steps])
    assert [row.steps for row in result] == [["x = 1"], ["x = 12", "."], ["x = 12", "so"]]


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ({"text": "q", "mc_value": 0.5, "children": []}, "no steps"),
        ({"text": "q", "mc_value": 0.5}, "wrong type"),
        ({"text": "q", "mc_value": 0.5, "children": ["a"]}, "wrong type"),
        ({"text": "q", "mc_value": None, "children": []}, "no value"),
        (TREE | {"children": [{"text": "a", "mc_value": 0.3, "children": []}]}, "no share"),
        (TREE | {"children": [{"text": " ", "mc_value": 1, "children": []}]}, "empty text"),
        ("a", "wrong type"),
        ([], "no steps"),
        ([{"solution_prefix": "other", "mc_value": 1.0}], "no question"),
        ([{"solution_prefix": "q \n", "mc_value": 1.0}], "empty step"),
        ([{"solution_prefix": "qa", "mc_value": 2.0}], "no value"),
    ],
)
def test_a_bad_row_is_refused(nodes, reason):
    with pytest.raises(RejectedError, match=f"^{reason}: "):
        read(nodes)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="no ../shared/data/prm_format_samples")
def test_the_real_rows():
    def counts(name: str) -> list[tuple[int, int]]:
        """Solutions, and labels that count, of each row."""
        rows = step_files.read_solutions(SAMPLES / name, config(num_completions=32))
        return [
            (len(row), sum(label is not None for raw in row for label in raw.labels))
            for row in rows
        ]

    # Of each distinct text but the root, one label: 86, 10 and 39 of 90, 13 and 42 estimates.
    assert counts("math_aps_sample3.jsonl") == [(81, 85), (7, 9), (36, 38)]

    def below(node: dict) -> int:
        return sum(1 + below(child) for child in node["children"])

    trees = [
        json.loads(line)["reasoning_steps"]
        for line in (SAMPLES / "math_aps_tree_sample.jsonl").read_text("utf-8").splitlines()
    ]
    result = counts("math_aps_tree_sample.jsonl")
    assert [paths for paths, _ in result] == [137, 85, 20]
    assert [labels for _, labels in result] == [below(tree) for tree in trees]
