"""Every family of stages killed at any moment ends with the bits of stages that nobody killed.

One kill of GRPO runs before a commit lands: tests/test_pipeline.py. The name of a new kind of stage
is a row of `FAMILIES`. A sweep: RESUME_KILLS=20 pytest -m weekly tests/resume
"""

import os
import random
from collections.abc import Callable

import pytest
from pipeline_copy import PipelineCopy, find_edit
from resume.killed_stages import FAMILIES, KilledStages

pytestmark = pytest.mark.weekly

KILLS = int(os.environ.get("RESUME_KILLS", "5"))
"""Number of kills of each stage; another number also kills at other moments."""


@pytest.fixture(scope="module")
def stages(pipeline_copy: Callable[..., PipelineCopy]) -> KilledStages:
    copy = pipeline_copy(find_edit("families"))
    copy.change(find_edit("a long update"))
    copy.repro()
    return KilledStages(copy)


def test_every_kind_of_stage_has_a_family(stages: KilledStages) -> None:
    kinds = {stage.partition("@")[0] for stage in stages.lock if "@" in stage}
    assert kinds == {stage.partition("@")[0] for stage in FAMILIES.values()} | {"environment"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_killed_stage_ends_with_the_same_bits(family, stages: KilledStages) -> None:
    stages.check(FAMILIES[family], KILLS, random.Random(f"{family} {KILLS}"))
