from stages.records import metrics


def test_the_first_place_with_a_number_counts():
    result = {"heldout": {"auc": None, "labels": {"auroc_within_problem": 0.6}}}
    places = ["heldout/auc", "heldout/labels/auroc_within_problem"]
    assert metrics.find_metric(result, places) == 0.6
    assert metrics.find_metric({"heldout": 3}, places) is None


def test_a_name_may_hold_a_slash():
    assert metrics.find_metric({"reward/mean": 0.5}, ["reward/mean"]) == 0.5


def test_there_is_no_negative_zero():
    assert str(metrics.round_metric(-1e-9)) == "0.0"
