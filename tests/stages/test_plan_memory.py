import subprocess
import sys
from pathlib import Path

from stages import params, plan_memory
from stages.algorithms.memory.shape import parameters
from stages.reports import memory_jobs, model_words

REPOSITORY = Path(__file__).resolve().parents[2]


def told(*flags):
    return plan_memory.plan(plan_memory.parser().parse_args(flags))


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


def test_the_plan_has_every_entry_that_trains():
    content = params.read(REPOSITORY / "params.yaml")
    found = memory_jobs.jobs(content, model_words.base(content["model"]))
    plan = content["plan"]
    trained = {f"{stage}/{n}" for stage in plan if stage.startswith("train_") for n in plan[stage]}
    assert found.keys() == trained
    # As many numbers as params.yaml's model can have: its tokenizer may have fewer tokens.
    assert parameters(found["train_sft/sft"].shape, "language_model") == 900 * 192 + 885_696


def test_it_prints_a_table_without_torch():
    code = (
        "import sys; from stages import plan_memory; plan_memory.main(); "
        "assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", code, "--model", "7B", "--method", "grpo"]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert "| policy | 7,615,616,512 |" in result.stdout
