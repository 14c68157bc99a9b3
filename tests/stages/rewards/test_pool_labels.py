"""What is made of a pool's completions: verdicts, pairs, demonstrations, outcomes, evaluations."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import judged_rows
import numpy as np
import pytest
from judged_rows import completion
from ruamel.yaml import YAML
from tiny_rollouts import make_pairs

from stages.records import lines
from stages.records.pools import Completion, Score
from stages.records.steps import StepLabels
from stages.records.temperatures import FILE, SampledFile
from stages.rewards import pool_scores, verifier_labels
from stages.rewards.pool_scores import Aggregation, choose_aggregation, score_pool
from stages.rewards.problem_evaluation import (
    SampleScores,
    evaluate_problem,
    pool_accuracy,
    read_temperatures,
)
from stages.rewards.verifier_labels import CheckedProblem, balance_outcomes, check_pool
from stages.rows import PROMPTS

TABLES = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
PROMPT = judged_rows.prompt(gold="42")


def row(index: int, answer: str = "42", *, cut: bool = False, ids: int | None = None) -> Completion:
    """A completion whose tokens name its number, or `ids`."""
    first = 10 + (index if ids is None else ids)
    return completion(f"step {index}\n#### {answer}", index, ids=[first, 3], cut=cut)


# --- preference pairs


def pairs(pool: Sequence[Completion], max_pairs: int = 99, seed: int = 0) -> list[tuple[int, int]]:
    """Numbers of the chosen and the rejected completion of each pair."""
    labelled = verifier_labels.label_pairs(PROMPT, pool, max_pairs=max_pairs, seed=seed)
    return [(pair.chosen_ids[0] - 10, pair.rejected_ids[0] - 10) for pair in labelled.preferences]


@pytest.mark.parametrize(("rows", "expected"), TABLES["pairs"])
def test_a_pair_is_a_right_completion_that_ended_and_a_wrong_one(rows, expected):
    pool = [
        row(i, str(item.get("answer", 42)), cut=item.get("cut", False), ids=item.get("as"))
        for i, item in enumerate(rows)
    ]
    assert pairs(pool) == [tuple(pair) for pair in expected]
    labelled = verifier_labels.label_pairs(PROMPT, pool, max_pairs=9, seed=0)
    texts = {row.completion: row.completion_ids for row in pool}
    for pair in labelled.preferences:
        assert (pair.id, pair.prompt, pair.prompt_ids) == ("a", PROMPT.prompt, PROMPT.prompt_ids)
        assert (texts[pair.chosen], texts[pair.rejected]) == (pair.chosen_ids, pair.rejected_ids)
        assert (pair.probability, pair.source) == (1.0, "verifier")


@pytest.mark.parametrize(("right", "wrong"), [(2, 4), (3, 4), (3, 3), (1, 5), (6, 4)])
def test_every_pair_comes_once_and_no_completion_again_before_it_must(right, wrong):
    pool = [row(i, "42" if i < right else "7") for i in range(right + wrong)]
    every = list(itertools.product(range(right), range(right, right + wrong)))
    result = pairs(pool)
    assert sorted(result) == every
    for number in range(1, len(every) + 1):
        assert pairs(pool, number) == result[:number]
        counts = [[pair[side] for pair in result[:number]] for side in (0, 1)]
        for side, size in zip(counts, (right, wrong), strict=True):
            assert max(map(side.count, side)) == math.ceil(number / size)


def test_problems_are_counted_by_what_became_of_them():
    pools = [
        [row(0), row(1, "7"), row(2, "8")], [row(0), row(1)], [row(0, "7")],
        [row(0, cut=True), row(1, "7")],
    ]  # fmt: skip
    labelled = [verifier_labels.label_pairs(PROMPT, pool, max_pairs=9, seed=0) for pool in pools]
    assert verifier_labels.summarise_pairs(labelled) == {
        "problems": 4, "problems_with_pairs": 1, "problems_all_correct": 1,
        "problems_all_wrong": 1, "problems_right_only_cut": 1, "pairs": 2,
        "mean_length_chosen": 2.0, "mean_length_rejected": 2.0,
    }  # fmt: skip
    kept = verifier_labels.select_demonstrations(PROMPT, pools[1], max_kept=2, seed=0)
    assert verifier_labels.summarise_demonstrations([kept, []], 8) == {
        "problems": 2, "problems_with_any": 1, "kept": 2, "share": 0.25,
    }  # fmt: skip


PAIRS = make_pairs(40, probability=0.9)


def find_flipped(percent: int, seed: int = 0, pairs=PAIRS) -> set[int]:
    result = verifier_labels.flip_labels(pairs, percent, seed)
    assert {pair.probability for pair in result} <= {0.9, 1 - 0.9}
    assert [replace(pair, probability=0.9) for pair in result] == list(pairs)
    return {i for i, pair in enumerate(result) if pair != pairs[i]}


@pytest.mark.parametrize(("percent", "of", "number"), TABLES["flipped"])
def test_an_exact_share_of_labels_is_flipped_and_half_a_pair_is_one(percent, of, number):
    assert len(find_flipped(percent, pairs=PAIRS[:of])) == number


def test_less_noise_is_part_of_more():
    assert find_flipped(10) < find_flipped(25) < find_flipped(50)


def swap(pair):
    return replace(
        pair, chosen=pair.rejected, chosen_ids=pair.rejected_ids, rejected=pair.chosen,
        rejected_ids=pair.chosen_ids,
    )  # fmt: skip


def test_sides_are_swapped_of_the_pairs_whose_labels_would_flip():
    checked = CheckedProblem(prompt=PROMPT, right=[], wrong=[])
    problems = [verifier_labels.LabelledPairs(PAIRS[at : at + 8], checked) for at in (0, 8, 16)]
    swapped = verifier_labels.swap_sides(problems, 25, seed=3)
    numbers = find_flipped(25, seed=3, pairs=PAIRS[:24])
    assert [pair for problem in swapped for pair in problem.preferences] == [
        swap(pair) if number in numbers else pair for number, pair in enumerate(PAIRS[:24])
    ]


# --- demonstrations


def select(pool: Sequence[Completion], max_kept: int = 9, seed: int = 0) -> list[int]:
    rows = verifier_labels.select_demonstrations(PROMPT, pool, max_kept=max_kept, seed=seed)
    assert {(row.id, tuple(row.prompt_ids)) for row in rows} <= {("a", (5,))}
    return [row.completion_ids[0] - 10 for row in rows]


def test_demonstrations_are_distinct_right_completions_that_ended_in_the_order_of_the_pool():
    assert select([row(0), row(1, "5"), row(2, cut=True), row(0), row(4)]) == [0, 4]
    draws = [select([row(index) for index in range(6)], 2, seed) for seed in range(20)]
    assert all(len(draw) == 2 and draw[0] < draw[1] for draw in draws)


# --- outcomes


def balance(right: int, wrong: int, most: int = 4, one_class: float = 0.0, seed: int = 0):
    """Outcomes of a pool with so many different right and wrong completions."""
    rows = [row(i, "42" if i < right else "7") for i in range(right + wrong)]
    return balance_outcomes(check_pool(PROMPT, rows), most, one_class, seed)


@pytest.mark.parametrize(
    ("right", "wrong", "most", "one_class", "of_right", "of_wrong"), TABLES["outcomes"]
)
def test_right_and_wrong_outcomes_weigh_the_same_and_share_the_places(
    right, wrong, most, one_class, of_right, of_wrong
):
    """A half each; those of a problem of one class together what the preset says."""
    result = balance(right, wrong, most, one_class)
    assert [row.right for row in result] == [True] * of_right + [False] * of_wrong
    whole = 0.5 if right and wrong else one_class
    expected = [whole / number for number in (of_right, of_wrong) for _ in range(number)]
    assert [row.weight for row in result] == pytest.approx(expected)


def test_of_repeats_the_first_stands_where_the_last_one_stood():
    """Draws by a seed depend on the order, so another one would be other labels everywhere."""
    rows = [row(0), row(1), row(2, ids=0), row(3), row(4, ids=1)]
    assert select(rows) == [0, 3, 1]
    outcomes = balance_outcomes(check_pool(PROMPT, rows), 9, 0.3, 0)
    assert sorted(row.completion_ids for row in outcomes) == [[10, 3], [11, 3], [13, 3]]


@pytest.mark.parametrize("draw", [
    lambda seed: pairs([row(i, "42" if i < 4 else "7") for i in range(8)], 2, seed),
    lambda seed: select([row(index) for index in range(6)], 2, seed),
    lambda seed: [item.completion_ids for item in balance(9, 9, seed=seed)],
    lambda seed: find_flipped(25, seed=seed),
], ids=["pairs", "demonstrations", "outcomes", "flips"])  # fmt: skip
def test_draws_depend_on_the_seed_alone(draw):
    draws = [str(draw(seed)) for seed in range(20)]
    assert draws == [str(draw(seed)) for seed in range(20)]
    assert len({*draws}) > 3


def test_held_out_outcomes_are_every_completion_as_sampled():
    pools = [[row(0), row(1, "7"), row(0)], [row(0, "7"), row(0, "7")]]
    mixed, wrong = verifier_labels.heldout_outcomes([check_pool(PROMPT, pool) for pool in pools])
    assert [row.right for row in mixed] == [True, True, False]
    assert [row.weight for row in mixed] == pytest.approx([1 / 3] * 3)
    assert [(row.right, row.weight) for row in wrong] == [(False, 0.5)] * 2


def test_training_outcomes_need_a_problem_of_both_classes():
    both, one = (check_pool(PROMPT, pool) for pool in ([row(0), row(1, "7")], [row(0), row(1)]))
    settings = {"max_per_problem": 4, "one_class_weight": 0.0, "seed": 0}
    assert len(verifier_labels.training_outcomes([one, both, one], **settings)) == 1
    with pytest.raises(ValueError, match="of 2"):
        verifier_labels.training_outcomes([one] * 2, **settings | {"one_class_weight": 1.0})


# --- evaluation of a problem

THOUSAND = judged_rows.prompt("p", gold="1,000")
POOL = [
    completion(text, index, "p", ids=[7] * length, cut=length == 6)
    for index, (text, length) in enumerate(TABLES["samples"])
]
SCORES = {
    name: SampleScores(*(numbers and np.array(numbers) for numbers in pair))
    for name, pair in TABLES["scores"].items()
}
ORDERS = np.array(list(itertools.permutations(range(4))))


def test_the_evaluation_of_four_samples_worked_by_hand():
    """Right: 0 and 1 (an answer in two spellings). Wrong: 2. Unreadable: 3."""
    result = evaluate_problem(
        THOUSAND, POOL, completion("It is 1000, not #### 550"), SCORES, ks=[1, 2, 4], orders=ORDERS
    )
    for name, value in TABLES["evaluation"].items():
        assert getattr(result, name) == value, name
    assert result.accuracy_at.keys() == TABLES["accuracies"].keys()
    for way, values in TABLES["accuracies"].items():
        of_n = dict(zip("124", values, strict=True))
        assert result.accuracy_at[way] == pytest.approx(of_n, abs=1e-12), way
    assert pool_accuracy([(THOUSAND, POOL), (PROMPT, [row(0)])]) == 3 / 5
    run_on = [completion("#### 1000\n\nWhat is 1 + 2?\n#### 3"), completion("#### 3\n#### 1000", 1)]
    result = evaluate_problem(THOUSAND, run_on, POOL[0], {}, ks=[1], orders=ORDERS[:, :2])
    assert (result.right_first_rate, result.mean_accuracy) == (0.5, 0.5)
    three = [POOL[0], POOL[2], POOL[1]]
    result = evaluate_problem(THOUSAND, three, POOL[0], {}, ks=[1], orders=ORDERS[:, :3])
    assert (result.even_correct, result.num_correct) == (2, 2)


@pytest.mark.parametrize(("gold", "wrong"), [
    ("3:30", "4:30"), ("May 5", "May 6"), ("2 or 3", "4 or 5"), ("5 ft 3 in", "5 ft 4 in"),
    ("5 km", "5 m"),
])  # fmt: skip
def test_of_answers_that_are_compared_as_text_or_by_units_the_more_frequent_wins(gold, wrong):
    for texts, wins in ([gold, gold, gold, wrong], 1.0), ([wrong, gold, wrong, wrong], 0.0):
        pool = [row(i, text) for i, text in enumerate(texts)]
        problem, share = judged_rows.prompt(gold=gold), texts.count(gold) / 4
        result = evaluate_problem(problem, pool, pool[0], {}, ks=[1, 4], orders=ORDERS)
        assert result.accuracy_at["majority"] == {"1": share, "4": wins}
        assert (result.mean_accuracy, result.readable_rate) == (share, 1.0)


def test_accuracies_of_each_temperature_are_those_of_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    no_gold = replace(judged_rows.prompt("q"), answer=None)
    files = [SampledFile(name=name, split="dev", temperature=t) for name, t in
             (("dev", 1.0), ("dev-greedy", 0.0))]  # fmt: skip
    lines.write_lines(PROMPTS / "dev.jsonl", [THOUSAND, no_gold])
    samples = tmp_path / "samples"
    lines.write_lines(samples / FILE, files)
    for file, pool in zip(files, (POOL, POOL[1:2]), strict=True):
        rest = [replace(item, id="q") for item in pool]
        numbered = [replace(item, index=i % len(pool)) for i, item in enumerate([*pool, *rest])]
        lines.write_lines(samples / f"{file.name}.jsonl", numbered)
    result = [
        (row.id, row.file, row.temperature, row.num_samples, row.accuracy, row.strict, row.lenient)
        for row in read_temperatures(samples)
    ]
    assert result == [("p", "dev", 1.0, 4, 0.5, 0.25, 0.5), ("p", "dev-greedy", 0.0, 1, 1, 0, 1)]


# --- scores of a pool

TWO = [replace(completion("", i, "a", ids=[7] * n), logprob_sum=s) for i, n, s in
       ((0, 4, -2.0), (1, 2, -3.0))]  # fmt: skip
CHOICE = {"process": Aggregation(best_of="min", weighted="last")}


def score(pool, steps=None, **scores) -> list[Score]:
    """Scores of a pool: of reward models by name, and of `process` the steps."""
    return [
        Score(
            id="a", index=i, scores={name: values[i] for name, values in scores.items()},
            disagreement={}, steps={} if steps is None else {"process": steps[i]},
        )
        for i in range(len(pool))
    ]  # fmt: skip


def test_the_views_of_a_pool_by_hand():
    """Logits choose as they are and vote by their logistic function, steps by the choice."""
    rows = score(TWO, [[0.9, 0.5, 0.8], [0.6]], model=(0.0, math.log(3.0)), outcome=(-1.0, 1.0))
    views = score_pool(PROMPT, TWO, rows, CHOICE)
    assert list(views) == list(TABLES["views"])
    for name, (values, weights) in TABLES["views"].items():
        assert views[name].values.tolist() == pytest.approx(values)
        assert (views[name].weights is None) == (weights is None)
        assert weights is None or views[name].weights.tolist() == pytest.approx(weights)
    with pytest.raises(ValueError, match="format, longest"):
        score_pool(PROMPT, TWO, score(TWO, format=(0.0, 1.0), longest=(1.0, 0.0)), CHOICE)


def test_products_that_differ_by_rounding_are_ties():
    a, b, c = 0.1, 0.7, 0.3
    assert (a * b) * c != (c * b) * a
    product = {"process": Aggregation(best_of="product", weighted="product")}
    rows = score(TWO, [[a, b, c], [c, b, a]])
    first, second = score_pool(PROMPT, TWO, rows, product)["process"].values
    assert first == second


@pytest.mark.parametrize(("prompt", "texts", "expected"), TABLES["formats"])
def test_the_format_alone_chooses_among_those_that_have_it(prompt, texts, expected):
    pool = [completion(text, i) for i, text in enumerate(texts)]
    view = score_pool(replace(PROMPT, prompt=prompt), pool, score(pool), {})["format"]
    assert view.values.tolist() == view.weights.tolist() == expected


def solution(index: int, answer: str, correct: bool | None, problem: str = "p") -> StepLabels:
    return StepLabels(
        id=problem, index=index, prompt="", prompt_ids=[1], steps=["so", f"#### {answer}"],
        step_ids=[[2], [3]], labels=[None, None], num_completions=[0, 0], true_labels=None,
        correct=correct, source="none",
    )  # fmt: skip


@pytest.mark.parametrize("case", TABLES["aggregations"])
def test_the_aggregation_that_ranks_right_solutions_first_is_chosen(case, tmp_path):
    rows = [solution(number, *words) for number, words in enumerate(case["rows"])]
    scores = case.get("scores", TABLES["ranked"][: len(rows)])
    result, accuracy = choose_aggregation(rows, scores)
    assert [result.best_of, result.weighted] == case["choice"]
    assert accuracy == {
        use: dict(zip(("last", "min", "product", "mean"), case[use], strict=True))
        for use in ("best_of", "weighted")
        if use in case
    }
    result.write(tmp_path)
    assert pool_scores.read_aggregation(tmp_path) == result
