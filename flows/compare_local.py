"""Compare methods at an equal budget of tokens, over several seeds, without Prefect.

    python -m flows.compare_local --policies dpo,ppo,grpo --seeds 0,1,2 --tokens 1000000

Writes data/compare/<name>/verdict.md and what it says in numbers. Killed and started again, it goes
on where it was.
"""

import sys
from pathlib import Path

from flows import comparison
from flows.execute import Limits, Result
from flows.local import run_local
from flows.plan import make_plan
from flows.process import exit_when_terminated
from flows.report import print_report


def main() -> int:
    """Run the command line; the result is the exit status."""
    arguments = comparison.parser("flows.compare_local", __doc__).parse_args()
    exit_when_terminated()
    hours = arguments.timeout_hours
    limits = Limits(timeout_seconds=None if hours is None else hours * 3600)

    def run_stages(copy: Path, targets: list[str]) -> dict[str, Result]:
        plan = make_plan(copy, targets)
        results = run_local(plan, copy, limits=limits, max_parallel=arguments.max_parallel)
        print_report(plan, results)
        return results

    try:
        folder = comparison.run(Path.cwd(), comparison.words(arguments), run_stages)
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    print((folder / "verdict.md").read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
