"""ProcessBench, as far as it lies in ../shared/data, against the tables of its paper."""

from pathlib import Path

import pytest

from stages.records.problems import BadRow
from stages.sources import step_files

DATA = Path(__file__).parents[4] / "shared/data/processbench"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="no ../shared/data")
TABLE_2 = {  # of the paper: erroneous, correct; and of the erroneous those with a right answer
    "gsm8k": (207, 193, 7), "math": (594, 406, 94), "olympiadbench": (661, 339, 161),
    "omnimath": (759, 241, 259),
}  # fmt: skip
CUTS = {"gsm8k": (77, 2669), "math": (419, 11409), "olympiadbench": (610,), "omnimath": (586,)}
"""Solutions that a newline cuts, as in data/README.md; and their steps then."""


@pytest.mark.parametrize("subset", TABLE_2)
def test_processbench_has_the_counts_of_its_paper(subset):
    form = step_files.ProcessBench(kind="processbench")
    rows = list(step_files.read_solutions(DATA / f"{subset}.json.gz", form))
    whole = [raw for row in rows if not isinstance(row, BadRow) for raw in row]
    wrong = [raw for raw in whole if 0.0 in raw.labels]
    right_answers = sum(bool(raw.correct) for raw in wrong)
    assert (len(wrong), len(whole) - len(wrong), right_answers) == TABLE_2[subset]
    assert all(raw.correct for raw in whole if 0.0 not in raw.labels)
    parts = [step_files.cut_steps(raw, "\n") for raw in whole]
    for raw, cut in zip(whole, parts, strict=True):
        assert "\n".join(cut.steps) == "\n".join(raw.steps)
        assert [x for x in cut.labels if x is not None] == [x for x in raw.labels if x is not None]
    counts = (
        sum("\n" in "".join(raw.steps) for raw in whole),
        sum(len(cut.steps) for cut in parts),
    )
    assert counts[: len(CUTS[subset])] == CUTS[subset]
