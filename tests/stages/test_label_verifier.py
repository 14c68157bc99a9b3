import pytest
import stage_inputs
from stage_inputs import SEED, WORDS, write_answers

from stages import label_verifier
from stages.records import lines
from stages.records.preferences import Preference
from stages.rows import DATA

OUTPUT = DATA / "pairs/new"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stage_inputs.configure({"max_pairs_per_problem": 2})


def test_both_files_hold_the_pairs_of_their_problems_and_the_metrics_count_them():
    write_answers("train", {"a": "4457", "b": "4444", "c": "5678"})
    write_answers("heldout", {"d": "45"})
    label_verifier.main("label_verifier", *WORDS)
    seed_folder = OUTPUT / str(SEED)
    train = list(lines.read_lines(seed_folder / "train.jsonl", Preference))
    heldout = list(lines.read_lines(seed_folder / "heldout.jsonl", Preference))
    assert [row.id for row in train] == ["a", "a"]
    assert {row.chosen for row in train} == {"#### 4"}
    assert {row.rejected for row in train} == {"#### 5", "#### 7"}
    assert [(row.id, row.chosen, row.rejected) for row in heldout] == [("d", "#### 4", "#### 5")]
    metrics = stage_inputs.metrics(seed_folder)
    assert metrics["train"]["problems"] == 3
    assert metrics["train"]["problems_with_pairs"] == 1
    assert metrics["train"]["problems_all_correct"] == 1
    assert metrics["train"]["problems_all_wrong"] == 1
    assert metrics["train"]["pairs"] == 2
    assert metrics["train"]["mean_length_chosen"] == 3.0
    assert metrics["heldout"]["pairs"] == 1


def test_each_seed_labels_its_own_completions_and_again_the_same():
    stage_inputs.configure({"max_pairs_per_problem": 2}, seeds=(0, 1))
    for seed, answers in enumerate(("4457", "4569")):
        write_answers("train", {"a": answers}, seed)
        write_answers("heldout", {"d": "45"}, seed)
    written = []
    for _ in range(2):
        label_verifier.main("label_verifier", *WORDS)
        written.append([(OUTPUT / f"{seed}/train.jsonl").read_bytes() for seed in (0, 1)])
    assert written[0] == written[1]
    assert b"#### 7" in written[0][0]
    assert b"#### 7" not in written[0][1]


def test_a_pool_without_any_pair_is_an_error_that_says_what_to_do():
    write_answers("train", {"a": "5678", "b": "4444"})
    write_answers("heldout", {"d": "45"})
    with pytest.raises(ValueError, match=r"found none: .*'problems_all_wrong': 1.*sample more"):
        label_verifier.main("label_verifier", *WORDS)
    assert not OUTPUT.exists()


def test_pairs_to_learn_from_are_made_where_none_can_be_held_out():
    write_answers("train", {"a": "45"})
    write_answers("heldout", {"d": "5678"})
    label_verifier.main("label_verifier", *WORDS)
    assert stage_inputs.metrics(OUTPUT / str(SEED))["train"]["pairs"] == 1
    assert not list(lines.read_lines(OUTPUT / str(SEED) / "heldout.jsonl", Preference))


def test_what_is_no_pool_is_told():
    with pytest.raises(ValueError, match=r"data/pools/old, found no pool\.json"):
        label_verifier.main("label_verifier", *WORDS)


def test_half_of_the_training_pairs_of_a_control_are_the_wrong_way_round():
    stage_inputs.configure({"max_pairs_per_problem": 2, "flip_percent": 50})
    write_answers("train", {"a": "4457", "b": "4589"})
    write_answers("heldout", {"d": "45"})
    label_verifier.main("label_verifier", *WORDS)
    seed_folder = OUTPUT / str(SEED)
    pairs = list(lines.read_lines(seed_folder / "train.jsonl", Preference))
    assert [pair.chosen == "#### 4" for pair in pairs].count(True) == 2
    assert all((pair.chosen == "#### 4") != (pair.rejected == "#### 4") for pair in pairs)
    assert all(pair.probability == 1.0 for pair in pairs)
    (heldout,) = lines.read_lines(seed_folder / "heldout.jsonl", Preference)
    assert heldout.chosen == "#### 4"
