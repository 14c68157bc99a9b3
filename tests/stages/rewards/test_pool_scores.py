import dataclasses
import math

import pytest
from judged_rows import completion

from stages.records.pools import Completion, Score
from stages.records.problems import Prompt
from stages.records.steps import StepLabels
from stages.rewards import pool_scores
from stages.rewards.pool_scores import Aggregation


def test_a_choice_comes_back_as_it_was_written(tmp_path):
    CHOICE["process"].write(tmp_path)
    assert pool_scores.read_aggregation(tmp_path) == CHOICE["process"]


@pytest.mark.parametrize(
    "text", ["[]", '{"best_of": "min"}', '{"best_of": "min", "weighted": "x"}']
)
def test_anything_else_is_refused(tmp_path, text):
    (tmp_path / pool_scores.AGGREGATION).write_text(text)
    with pytest.raises(ValueError, match="each one of last, min, product, mean"):
        pool_scores.read_aggregation(tmp_path)


PROMPT = Prompt(id="p", task="solve", question="?", prompt="Q", prompt_ids=[1], answer="7")
CHOICE = {"process": Aggregation(best_of="min", weighted="last")}


POOL = [
    dataclasses.replace(completion("", 0, "p", ids=[7] * 4), logprob_sum=-2.0),
    dataclasses.replace(completion("", 1, "p", ids=[7] * 2), logprob_sum=-3.0),
]


def rows(**scores: tuple[float, float]) -> list[Score]:
    steps = [[0.9, 0.5, 0.8], [0.6]]
    return [
        Score(
            id="p",
            index=index,
            scores={name: values[index] for name, values in scores.items()},
            disagreement={},
            steps={"process": steps[index]},
        )
        for index in range(2)
    ]


def unscored(pool: list[Completion]) -> list[Score]:
    return [Score(id=row.id, index=row.index, scores={}, disagreement={}, steps={}) for row in pool]


def test_what_needs_no_scores_comes_from_the_pool_alone():
    result = pool_scores.score_pool(PROMPT, POOL, unscored(POOL), {})
    assert list(result) == ["mean_logprob", "format", "longest", "shortest"]
    assert result["mean_logprob"].values.tolist() == [-0.5, -1.5]
    assert result["mean_logprob"].weights.tolist() == pytest.approx(
        [math.exp(-0.5), math.exp(-1.5)]
    )
    assert result["longest"].values.tolist() == [4.0, 2.0]
    assert result["shortest"].values.tolist() == [-4.0, -2.0]
    assert result["longest"].weights is result["shortest"].weights is None


def test_logits_choose_as_they_are_and_vote_by_their_logistic_function():
    scores = rows(reward_model=(0.0, math.log(3.0)), outcome=(-1.0, 1.0))
    result = pool_scores.score_pool(PROMPT, POOL, scores, CHOICE)
    assert list(result)[:3] == ["reward_model", "outcome", "process"]
    assert result["reward_model"].values.tolist() == [0.0, math.log(3.0)]
    assert result["reward_model"].weights.tolist() == pytest.approx([0.5, 0.75])


def test_scores_of_steps_become_one_as_chosen_for_each_use():
    result = pool_scores.score_pool(PROMPT, POOL, rows(), CHOICE)["process"]
    assert result.values.tolist() == [0.5, 0.6]
    assert result.weights.tolist() == [0.8, 0.6]


def test_a_reward_by_the_name_of_what_needs_none_is_refused():
    with pytest.raises(ValueError, match="which need no model, found format, longest"):
        pool_scores.score_pool(PROMPT, POOL, rows(format=(0.0, 1.0), longest=(1.0, 0.0)), CHOICE)


def test_products_that_differ_by_rounding_are_ties():
    first, second = rows()
    a, b, c = 0.1, 0.7, 0.3
    assert (a * b) * c != (c * b) * a
    pair = [
        Score(id="p", index=row.index, scores={}, disagreement={}, steps={"process": steps})
        for row, steps in ((first, [a, b, c]), (second, [c, b, a]))
    ]
    product = {"process": Aggregation(best_of="product", weighted="product")}
    values = pool_scores.score_pool(PROMPT, POOL, pair, product)["process"].values
    assert values[0] == values[1]


def test_the_format_alone_chooses_at_random_among_those_that_keep_it():
    texts = ["3 + 4 = 7\n#### 7", "#### 7", "3 + 4 = 7\n#### 7"]
    pool = [completion(text, i, "p") for i, text in enumerate(texts)]
    result = pool_scores.score_pool(PROMPT, pool, unscored(pool), {})["format"]
    assert result.values.tolist() == [1.0, 0.0, 1.0]
    assert result.weights.tolist() == [1.0, 0.0, 1.0]


def test_a_thought_that_the_template_began_is_no_part_of_the_format():
    begun = dataclasses.replace(PROMPT, prompt="Q<think>\n")
    texts = [
        "3 + 4\n</think>\n3 + 4 = 7\n#### 7",
        "3 + 4 = 7\n#### 7",
        "#### 6\n</think>\nso\n#### 7",
    ]
    pool = [completion(text, i, "p") for i, text in enumerate(texts)]
    result = pool_scores.score_pool(begun, pool, unscored(pool), {})["format"]
    # the second has not ended its thought: nothing is answered
    assert result.values.tolist() == [1.0, 0.0, 1.0]


def solution(index: int, answer: str, *, correct: bool | None) -> StepLabels:
    return StepLabels(
        id="p",
        index=index,
        prompt="",
        prompt_ids=[1],
        steps=["so", f"#### {answer}"],
        step_ids=[[2], [3]],
        labels=[None, None],
        num_completions=[0, 0],
        true_labels=None,
        correct=correct,
        source="none",
    )


def test_the_kind_that_ranks_right_solutions_first_is_chosen():
    # Right is the first. By last .4 < .5; min .4 > .1; product .32 > .05; mean .6 > .46.
    steps = [[0.8, 0.4], [0.1, 0.5, 0.75, 0.5]]
    actual = [solution(0, "7", correct=True), solution(1, "8", correct=False)]
    choice, accuracy = pool_scores.choose_aggregation(actual, steps)
    expected = {"last": 0.0, "min": 1.0, "product": 1.0, "mean": 1.0}
    assert accuracy == {"best_of": expected, "weighted": expected}
    assert choice == Aggregation(best_of="min", weighted="min")
    # The wrong answer twice: votes .2 of the product, .1 of it; by the mean .6 < .92.
    again = [*actual, dataclasses.replace(actual[1], index=2)]
    _, accuracy = pool_scores.choose_aggregation(again, [*steps, steps[1]])
    assert accuracy["best_of"] == expected
    assert accuracy["weighted"] == {"last": 0.0, "min": 1.0, "product": 1.0, "mean": 0.0}


@pytest.mark.parametrize("answers", [("B", "C"), ("even", "odd")])
def test_answers_that_are_words_or_letters_vote(answers: tuple[str, str]):
    steps = [[0.8, 0.4], [0.1, 0.5, 0.75, 0.5]]
    actual = [solution(0, answers[0], correct=True), solution(1, answers[1], correct=False)]
    choice, accuracy = pool_scores.choose_aggregation(actual, steps)
    expected = {"last": 0.0, "min": 1.0, "product": 1.0, "mean": 1.0}
    assert accuracy == {"best_of": expected, "weighted": expected}
    assert choice == Aggregation(best_of="min", weighted="min")


def test_without_an_answer_that_can_be_read_no_kind_of_vote_is_the_best():
    actual = [solution(0, "", correct=True), solution(1, "8", correct=False)]
    choice, accuracy = pool_scores.choose_aggregation(actual, [[0.1, 0.9], [0.2, 0.3]])
    # Right is the first: by last .9 > .3, by min .1 < .2.
    assert accuracy.keys() == {"best_of"}
    assert choice == Aggregation(best_of="last", weighted="min")


def test_where_nothing_tells_the_kinds_apart_the_worst_step_counts():
    alike = [solution(0, "7", correct=True), solution(1, "8", correct=None)]
    choice, accuracy = pool_scores.choose_aggregation(alike, [[0.1, 0.9], [0.9, 0.1]])
    assert (choice, accuracy) == (Aggregation(best_of="min", weighted="min"), {})
