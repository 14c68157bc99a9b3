"""Stages killed at any moment end with the bits of stages that nobody killed.

Which families and where, the commit chooses (tests/rotation.py). The whole sweep:

    RESUME_FAMILIES=all RESUME_KILLS=20 pytest -n 0 -m slow -s tests/resume/test_kills.py

Families by name: RESUME_FAMILIES=playing,sampling.
"""

import os
import random
from collections.abc import Callable

import pytest
import rotation
from pipeline_copy import PipelineCopy
from resume.killed_stages import FAMILIES, KilledStages, add_families

pytestmark = pytest.mark.slow


SEED, SELECTED = rotation.seed(), os.environ.get("RESUME_FAMILIES", "4")
KILLS = int(os.environ.get("RESUME_KILLS", "3"))
if SELECTED.isdecimal():
    CHOSEN = random.Random(SEED).sample([*FAMILIES], int(SELECTED))
else:
    CHOSEN = [*FAMILIES] if SELECTED == "all" else SELECTED.split(",")


@pytest.fixture(scope="module")
def stages(pipeline_copy: Callable[..., PipelineCopy]) -> KilledStages:
    copy = pipeline_copy(add_families)
    copy.repro()
    return KilledStages(copy)


@pytest.mark.parametrize("family", CHOSEN)
def test_a_killed_stage_ends_with_the_same_bits(family, stages: KilledStages, tmp_path, capsys):
    stage, draw = FAMILIES[family], random.Random(f"{SEED}-{family}")
    counts, seconds = stages.counts(stage, tmp_path / "counts")
    stages.compare(stage, "not killed")
    journals = stages.journals(stage)
    done = stages.kill_and_go_on(stage, KILLS, draw, counts, seconds)
    assert stages.journals(stage) == journals
    with capsys.disabled():
        print(f"\n{family}, seed {SEED}: killed at {', '.join(done.tried)}")
