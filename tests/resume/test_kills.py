"""Every family of stages killed at any moment ends with the bits of stages that nobody killed.

Three families with one kill each run before a commit lands: tests/test_pipeline.py. The name of a
new kind of stage is a row of `FAMILIES`.
"""

import random
from collections.abc import Callable

import pytest
from pipeline_copy import PipelineCopy, find_edit
from resume.killed_stages import FAMILIES, KilledStages

pytestmark = pytest.mark.weekly


@pytest.fixture(scope="module")
def stages(pipeline_copy: Callable[..., PipelineCopy]) -> KilledStages:
    copy = pipeline_copy(find_edit("families"))
    copy.repro()
    return KilledStages(copy)


def test_every_kind_of_stage_has_a_family(stages: KilledStages) -> None:
    kinds = {stage.partition("@")[0] for stage in stages.lock if "@" in stage}
    assert kinds == {stage.partition("@")[0] for stage in FAMILIES.values()} | {"environment"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_killed_stage_ends_with_the_same_bits(family, stages: KilledStages, tmp_path) -> None:
    stages.check(FAMILIES[family], 5, random.Random(family), tmp_path / "undisturbed")
