"""What a stage's process does not import: twenty stages start twenty of them."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_stage_with_a_model_imports_no_package_that_it_does_not_use() -> None:
    # without its words it fails, but not before it has imported everything
    command = [sys.executable, "-X", "importtime", "-m", "stages", "train_dpo"]
    result = subprocess.run(command, cwd=REPOSITORY, check=False, capture_output=True, text=True)
    assert "the following arguments are required: name" in result.stderr
    lines = result.stderr.splitlines()
    imported = {line.rsplit("|", 1)[1].strip() for line in lines if line.startswith("import time:")}
    assert "transformers" in imported
    assert not {"boto3", "pandas", "scipy", "sklearn"} & imported


def test_in_another_process_scikit_learn_is_there() -> None:
    code = "import stages, sklearn; from stages.runtime import runs"
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)


def test_a_stage_without_a_model_imports_no_torch() -> None:
    names = ("compare", "track", "trace_code", "label_verifier", "plan")
    code = "\n".join(["import sys", *(f"import stages.{name}" for name in names),
                      "assert not {'torch', 'transformers'} & set(sys.modules)"])  # fmt: skip
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)
