import csv

from stages.reports import step_label_plot
from stages.reports.step_label_audit import AuditConfig, Audited, audit

CONFIG = AuditConfig(thresholds=[0.5], num_bootstrap=100, confidence=0.95)
SOLUTIONS = [
    Audited(id="a", num_right=[2, 1], correct=True, true_labels=[True] * 3),
    Audited(id="b", num_right=[2, 1], correct=False, true_labels=[True, False, False]),
]


def table(folder):
    with (folder / "audit.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_of_each_rule_and_size_and_the_same_bytes_again(tmp_path):
    found = audit(SOLUTIONS, CONFIG, num_completions=2, seed=0)
    for folder in ("one", "two"):
        step_label_plot.write(tmp_path / folder, {"audit": found, "tokens_per_label": 20.0})
    rows = table(tmp_path / "one")
    assert [(row["rule"], row["k"], row["tokens_per_label"]) for row in rows] == [
        ("hard", "1", "10.0"),
        ("hard", "2", "20.0"),
        ("soft_0.5", "1", "10.0"),
        ("soft_0.5", "2", "20.0"),
    ]
    assert (rows[0]["precision"], rows[0]["recall"]) == ("0.5", "0.5")
    assert rows[1]["precision"] == ""  # nothing is labelled wrong
    for name in ("audit.csv", "audit.png"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_without_an_audit_the_table_is_empty_and_nothing_is_drawn(tmp_path):
    step_label_plot.write(tmp_path / "none", {"audit": {}, "tokens_per_label": None})
    assert table(tmp_path / "none") == []
    assert not (tmp_path / "none/audit.png").exists()
