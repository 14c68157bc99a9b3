"""What makes the imports of a stage's process faster, and that it is taken back."""

import subprocess
import sys

import pytest

WORK = """
import gc, sys
before = gc.get_threshold()
sys.argv[0] = {word!r}
import stages
print(gc.get_threshold() == before)
from stages.models import policy
print("sklearn" in sys.modules and sys.modules["sklearn"] is not None)
from stages.runtime import runs
with runs.start("train@toy"):
    import sklearn
    assert gc.get_threshold() == before
    assert sklearn.__version__
"""


@pytest.mark.slow
@pytest.mark.parametrize(("word", "as_ever"), [("-m", "False"), ("-c", "True")])
def test_a_stage_starts_without_scikit_learn_and_can_import_it_later(tmp_path, word, as_ever):
    command = [sys.executable, "-c", WORK.format(word=word)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.split() == [as_ever, as_ever]
