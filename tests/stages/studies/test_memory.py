import subprocess
import sys
from pathlib import Path

from stages import params
from stages.algorithms.memory.shape import parameters
from stages.params import PRESETS_PATH
from stages.studies import memory

REPOSITORY = Path(__file__).resolve().parents[3]


def told(*flags):
    return memory.plan(memory.parser().parse_args(flags))


def peak(*flags):
    (line,) = [line for line in told(*flags).splitlines() if line.startswith("**Peak")]
    number, unit = line.removeprefix("**Peak ").split(" ")[:2]
    return float(number.replace(",", "")) * (1024 if unit.startswith("GiB") else 1)


def test_a_hand_worked_model_of_eight_billion():
    text = told("--model", "llama-3.1-8b", "--method", "dpo", "--dtype", "float32")
    # 8,030,261,248 numbers: 29.92 GiB as weights, as gradients, twice as moments
    assert "| policy | 8,030,261,248 | 8,030,261,248 | 29.92 GiB | 59.83 GiB | 29.92 GiB |" in text
    assert "does not fit in 80 GiB" in text
    assert "fits in 400 GiB" in told(
        "--model", "8B", "--method", "dpo", "--gpu-gib", "400", "--max-tokens", "1024"
    )  # fmt: skip


def test_what_each_choice_saves():
    sizes = ("--model", "qwen2.5-1.5b", "--method")
    ppo, grpo, dpo = (peak(*sizes, method) for method in ("ppo", "grpo", "dpo"))
    assert ppo > grpo > dpo
    assert peak(*sizes, "grpo", "--reward-models", "0") < grpo
    assert peak(*sizes, "ppo", "--value", "shared") < ppo
    assert peak(*sizes, "dpo", "--lora-rank", "16") < dpo
    assert peak(*sizes, "dpo", "--gradient-checkpointing") < dpo
    assert peak(*sizes, "dpo", "--max-tokens", "1024") < dpo


def test_every_row_that_trains_has_a_job():
    content, presets = (params.read(REPOSITORY / path) for path in ("params.yaml", PRESETS_PATH))
    found = memory.jobs(content, presets, memory.base(content["model"]))
    expected = {f"policies/{name}" for name in content["policies"]}
    expected |= {f"rewards/{n}" for n, row in content["rewards"].items() if row["by"] != "rule"}
    assert found.keys() == expected
    # As many numbers as params.yaml's model can have: its tokenizer may have fewer tokens.
    tiny = content["model"]["tiny"]
    hidden, inner = tiny["hidden_size"], tiny["intermediate_size"]
    block = 4 * hidden * hidden + 3 * hidden * inner + 2 * hidden
    expected = tiny["vocab_size"] * hidden + tiny["num_layers"] * block + hidden
    assert parameters(found["policies/sft"].shape, "language_model") == expected


def test_it_prints_a_table_without_torch():
    code = (
        "import sys; from stages.studies import memory; memory.main(); "
        "assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", code, "--model", "7B", "--method", "grpo"]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert "| policy | 7,615,616,512 |" in result.stdout
