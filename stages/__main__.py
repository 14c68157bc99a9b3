"""Command line of the stages of dvc.yaml that work on a row of params.yaml.

    python -m stages train_grpo grpo --train grpo --preset grpo_deepseekmath --from sft --on ..

The first word is an entry point, a key of `rows.ENTRY_POINTS`; the others are the words of the row.
"""

import importlib
import sys

from stages.runtime import fork_server, process

WITHOUT_MODEL = "environment"
"""The entry point whose stage does not depend on `compute`: it computes nothing with a model."""


def main(*words: str) -> None:
    """Call `main` of the module that the first word names."""
    # What a process that has its work done by a fork does not import.
    from stages.params import adopt_rounding
    from stages.rows import ENTRY_POINTS

    if not words or words[0] not in ENTRY_POINTS:
        sys.exit(
            f"expected an entry point, found {words[0] if words else 'none'}: name one of "
            f"{', '.join(ENTRY_POINTS)}"
        )
    module = ENTRY_POINTS[words[0]]
    if module != WITHOUT_MODEL:
        adopt_rounding()
    importlib.import_module(f"stages.{module}").main(*words)


if __name__ == "__main__":
    if sys.argv[1:2] != [WITHOUT_MODEL]:  # which has other rounding than the server
        fork_server.work_in_fork()
    process.run(main)
