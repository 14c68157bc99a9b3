"""What the head of the report says of a run."""

import subprocess
import sys

import pytest
from dvc.utils.serialize import load_yaml

from stages.report import experiment

SIZE = {"parameters": 1_234_000, "trained_parameters": 1_234_000}
CONFIG = {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 28}


def test_the_digest_of_the_evaluations_is_dvcs(tmp_path):
    for name, content in {
        "sft/0/a.jsonl": "1\n",
        "sft/10/a.jsonl": "2\n",
        "b": "",
        "ü": "3",
    }.items():
        path = tmp_path / "evaluations" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    for words in (["init", "-q", "--no-scm"], ["add", "-q", "evaluations"]):
        subprocess.run([sys.executable, "-m", "dvc", *words], cwd=tmp_path, check=True)
    (out,) = load_yaml(tmp_path / "evaluations.dvc")["outs"]
    assert experiment.digest_folder(tmp_path / "evaluations") == out["md5"]


@pytest.mark.parametrize(
    ("model", "size", "text"),
    [
        ({"path": None}, SIZE, "Qwen3 of 1,234,000 parameters in 28 layers, trained from scratch"),
        ({"path": "Qwen/Qwen3-0.6B", "revision": "c1899de"}, SIZE,
         "Qwen/Qwen3-0.6B, revision c1899de, a Qwen3 of 1,234,000 parameters in 28 layers"),
        ({"path": "/home/ann/models/mine"}, SIZE | {"trained_parameters": 34_000},
         "mine, a Qwen3 of 1,200,000 parameters in 28 layers; LoRA trains 34,000 more"),
    ],
)  # fmt: skip
def test_a_model_is_named_with_its_size_and_no_folder_of_the_user(model, size, text):
    assert experiment.describe_model(model, config=CONFIG, size=size) == text


def test_a_converted_model_is_named_by_its_file_and_not_by_its_architecture():
    origin = {"files": {"Tiny-1M.Q4_1.gguf": "b179c9523d0e6a0f98a3"}, "quantisation": "Q4_1"}
    model = {"path": "package:weights/Tiny-1M.Q4_1.gguf"}
    assert experiment.describe_model(model, config=CONFIG, size=SIZE, origin=origin) == (
        "Tiny-1M, a Qwen3 of 1,234,000 parameters in 28 layers, converted from Q4_1 in "
        "`package:weights/Tiny-1M.Q4_1.gguf` (SHA-256 b179c9523d0e)"
    )


def test_data_with_the_size_of_each_split():
    card = {"source": "data/raw/a.jsonl, /home/ann/b.jsonl", "quarantined": {"too long": 2},
            "counts": {"train": 1000, "preference": 0, "dev": 3, "test": 4,
                       "demonstrations": 1000}}  # fmt: skip
    assert experiment.describe_data(card) == (
        "data/raw/a.jsonl, b.jsonl: 1,000 train, 0 preference, 3 dev and 4 test prompts, "
        "1,000 demonstrations, 2 rows quarantined"
    )


def test_versions_are_the_pinned_ones():
    pins = "# torch==1\nnumpy==2.3.5 ; python_version > '3'\ntorch==2.13.0\ntorchvision==9\n"
    text = experiment.describe_versions(pins, ["torch", "numpy", "vllm"])
    assert text == "torch 2.13.0 and numpy 2.3.5, as pinned in `constraints.txt`"


ROW = {"train": "dpo", "preset": "ipo_sum", "from": "sft", "on": "pairs/judge"}
METRICS = {0: {"trained_tokens": 1000}, 1: {"trained_tokens": 2000}}


def test_steps_of_unequal_number_and_the_highest_rate():
    history = [[{"optim/learning_rate": rate} for rate in rates] for rates in ([0.1, 0.3], [0.2])]
    assert experiment.tabulate_method(ROW, history, METRICS) == {
        "method": "DPO", "preset": "ipo_sum", "from": "sft", "on": "pairs/judge",
        "steps": "1 to 2", "learning rate": "0.3", "tokens trained on": "1,500",
        "tokens generated": "0",
    }  # fmt: skip


def test_sizes_of_a_row_stand_beside_its_words():
    row = {"num_steps": 8, **ROW, "optim": {"learning_rate": 1e-4}}
    cells = experiment.tabulate_method(row, [[{}], [{}]], METRICS)
    assert cells[experiment.SIZES] == "num_steps: 8, optim.learning_rate: 0.0001"
