import hashlib
from dataclasses import replace

import pytest

from stages.records.problems import Problem
from stages.sources import splitting
from stages.sources.splitting import Shares, normalise_question, split_problems

SHARES = Shares(preference=0.2, dev=0.1, test=0.1)


def problems(count: int, fixed: str | None = None) -> list[Problem]:
    return [
        Problem(id=f"{i}", question=f"{i}+1?", answer="1", solution=None, split=fixed, line=i + 1)
        for i in range(count)
    ]


def test_shares_are_met_and_every_problem_is_in_one_split():
    splits = split_problems(problems(5000), SHARES)
    counts = {name: len(rows) for name, rows in splits.items()}
    assert sum(counts.values()) == 5000
    for name, share in (("train", 0.6), ("preference", 0.2), ("dev", 0.1), ("test", 0.1)):
        # Four standard deviations of a binomial count are 0.03 at most.
        assert abs(counts[name] / 5000 - share) < 0.03
    assert len({row.id for rows in splits.values() for row in rows}) == 5000


def test_a_problems_split_does_not_depend_on_the_others():
    everything = split_problems(problems(2000), SHARES)
    some = split_problems(problems(2000)[::-3], SHARES)
    for name, rows in some.items():
        assert {row.id for row in rows} <= {row.id for row in everything[name]}


def test_the_same_question_stays_on_one_side():
    rows = problems(300)
    again = [replace(row, id=f"again-{row.id}", question=f" {row.question}\n") for row in rows]
    for members in split_problems(rows + again, SHARES).values():
        ids = {row.id for row in members}
        assert {f"again-{name}" for name in ids if not name.startswith("again")} == {
            name for name in ids if name.startswith("again")
        }


def test_a_fixed_test_split_is_kept_and_the_test_share_unused():
    test = [replace(row, id=f"t{row.id}", split="test") for row in problems(7)]
    splits = split_problems([*problems(5000, "train"), *test], SHARES)
    assert splits["test"] == test
    assert abs(len(splits["train"]) / 5000 - 0.7) < 0.03


def test_a_test_split_of_which_nothing_is_left_is_not_taken_from_the_others():
    with pytest.raises(ValueError, match="expected usable rows in the source's test split"):
        split_problems(problems(5000, "train"), SHARES, has_test=True)
    assert split_problems(problems(5000, "train"), SHARES)["test"]


def test_an_empty_split_and_shares_above_one_are_refused():
    with pytest.raises(ValueError, match="3 problems, of 3 different questions, leave the split"):
        split_problems(problems(3), SHARES)
    with pytest.raises(ValueError, match=r"add up to 1\.1"):
        split_problems(problems(100), Shares(preference=0.5, dev=0.3, test=0.3))


def test_normalising_drops_only_what_does_not_change_a_question():
    assert normalise_question(" What  IS\n2+2? ") == "what is 2+2?"
    assert normalise_question("2 - 2?") != normalise_question("2 + 2?")


def test_digests_cover_files_and_folders(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "folder" / "b").write_bytes(b"2")
    assert splitting.file_digests(tmp_path, ["a", "folder"]) == {
        "a": hashlib.sha256(b"1").hexdigest(),
        "folder/b": hashlib.sha256(b"2").hexdigest(),
    }
