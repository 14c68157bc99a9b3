"""What makes the imports of a stage's process faster, and that it is taken back."""

import importlib.metadata
import subprocess
import sys

import pytest

from stages import imports

WORK = """
import gc, sys
before = gc.get_threshold()
sys.argv[0] = {word!r}
import stages
print(gc.get_threshold() == before)
from stages.models import policy
print({{"boto3", "scipy", "sklearn"}} <= set(sys.modules))
from transformers.utils import is_accelerate_available
assert is_accelerate_available()  # or transformers reads no GGUF file
from stages.runtime import runs
with runs.start("train@toy"):
    import boto3, peft, scipy.optimize, sklearn
    assert gc.get_threshold() == before
    assert sklearn.__version__
"""


@pytest.mark.slow
@pytest.mark.parametrize(("word", "as_ever"), [("-m", "False"), ("-c", "True")])
def test_a_stage_starts_without_unused_packages_and_can_import_them_later(tmp_path, word, as_ever):
    command = [sys.executable, "-c", WORK.format(word=word)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.split() == [as_ever, as_ever]


def test_packages_have_the_distributions_that_the_standard_library_lists(tmp_path, monkeypatch):
    quick = imports.packages_distributions()
    for name, distributions in importlib.metadata.packages_distributions().items():
        if "." not in name and "__" not in name:  # later Pythons list compiled modules, too
            assert set(quick.get(name, ())) == set(distributions), name
    folder = tmp_path / "three_things-1.0.dist-info"  # without declared names: those of its files
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: Three-Things\nVersion: 1.0\n")
    files = ["one/__init__.py", "one/two.py", "three.py", "share/four.txt", "one/five.so"]
    (folder / "RECORD").write_text("".join(f"{file},sha256=00,1\n" for file in files))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert imports.packages_distributions() == {"one": ["Three-Things"], "three": ["Three-Things"]}
