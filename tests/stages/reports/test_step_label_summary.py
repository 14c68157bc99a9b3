from stages.records.steps import PrefixCount, StepLabels
from stages.reports import step_label_summary
from stages.reports.step_label_audit import AuditConfig

CONFIG = AuditConfig(thresholds=[], num_bootstrap=100, confidence=0.95)


def row(index, labels, truth, *, correct):
    return StepLabels(
        id="a",
        index=index,
        prompt="",
        prompt_ids=[1],
        steps=["x"] * len(labels),
        step_ids=[[2]] * len(labels),
        labels=labels,
        num_completions=[4] * (len(labels) - 1) + [0],
        true_labels=truth,
        correct=correct,
        source="math_shepherd",
    )


def count(ids, right):
    return PrefixCount(
        id="a",
        prefix_ids=ids,
        num_completions=4,
        num_right=right,
        low=0.25,
        high=0.75,
        generated_tokens=30,
    )


SHARED = count([2], 4)
ROWS = [
    (row(0, [1.0, 0.0, 1.0], [True, False, False], correct=True), [SHARED, count([2, 2], 0)]),
    (row(1, [1.0, 1.0], [True, True], correct=True), [SHARED]),
]


def summarise(rows):
    return step_label_summary.summarise(rows, CONFIG, num_cut=5, seed=0)


def test_what_was_completed_once_is_paid_once_and_labels_two_steps():
    found = summarise(ROWS)
    assert found["generated_tokens"] == 60
    assert (found["estimated_labels"], found["completed_prefixes"]) == (3, 2)
    assert found["tokens_per_label"] == 20.0
    assert step_label_summary.tokens_by_size(found) == {"1": 5.0, "2": 10.0, "4": 20.0}


def test_counts_and_shares():
    found = summarise(ROWS)
    assert (found["problems"], found["solutions"], found["steps"]) == (1, 2, 5)
    assert (found["cut_completions"], found["trained_tokens"]) == (5, 0)
    assert found["interval_width"] == 0.5
    assert found["labelled_right"] == 0.8
    assert found["truly_right"] == 0.6
    assert found["answers_right"] == 1.0
    assert found["right_answers_with_a_wrong_step"] == 0.5
    assert found["audit"]["hard"]["4"]["precision"]["value"] == 1.0


def test_nothing_is_audited_where_nothing_was_estimated_or_nothing_is_known():
    truth = [(row(0, [1.0, 0.0], [True, False], correct=False), [])]
    unknown = [(row(0, [1.0, 0.0], None, correct=False), [SHARED])]
    for rows in (truth, unknown):
        found = summarise(rows)
        assert found["audit"] == {}
        assert step_label_summary.tokens_by_size(found) == {}
    assert summarise(truth)["tokens_per_label"] is None
    assert summarise(unknown)["truly_right"] is None


def test_no_solution_at_all_has_no_shares():
    assert summarise([])["answers_right"] is None
