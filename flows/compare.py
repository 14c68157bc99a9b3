"""Compare methods at an equal budget of tokens, over several seeds, as a Prefect flow.

    python -m flows.compare --policies dpo,ppo,grpo --seeds 0,1,2 --tokens 1000000 -j 2

One task a stage and seed. Writes data/compare/<name>/verdict.md and what it says in numbers.
Killed and started again, it goes on where it was. `flows.compare_local` does without Prefect.
"""

import sys
from pathlib import Path

from prefect import flow
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import State
from prefect.states import Completed
from prefect.task_runners import ThreadPoolTaskRunner

from flows import comparison
from flows.execute import Limits, Result
from flows.pipeline import MAX_WORKERS, run_with_prefect
from flows.plan import make_plan
from flows.process import exit_when_terminated
from flows.report import print_report


# Prefect's types know no thread pool of their own.
@flow(  # pyright: ignore[reportCallIssue]
    name="compare",
    task_runner=ThreadPoolTaskRunner(max_workers=MAX_WORKERS),  # pyright: ignore[reportArgumentType]
    validate_parameters=True,
    persist_result=False,
)
def compare(
    policies: list[str],
    seeds: list[int],
    tokens: int,
    recipe: str | None = None,
    name: str | None = None,
    max_parallel: int = 1,
    timeout_hours: float | None = None,
) -> State:
    """Train the policies with every seed at the same budget, and write the verdict.

    Args:
        policies: entries of `evaluate_policy`, two or more.
        seeds: one or more; of one, the verdict is about these checkpoints alone.
        tokens: the budget of each policy, generated and trained on together.
        recipe: of recipes.yaml; none means the plan.
        name: folder under data/compare; none means one made of the policies and the budget.
        max_parallel: the most stages at one time; seeds come one after the other.
        timeout_hours: for one attempt of one stage; none means no limit.
    """
    limits = Limits(timeout_seconds=None if timeout_hours is None else timeout_hours * 3600)

    def run_stages(copy: Path, targets: list[str]) -> dict[str, Result]:
        plan = make_plan(copy, targets)
        results = run_with_prefect(plan, copy, limits=limits, max_parallel=max_parallel)
        print_report(plan, results)
        return results

    wanted = comparison.of(policies, seeds, tokens, recipe, name)
    folder = comparison.run(Path.cwd(), wanted, run_stages)
    verdict = (folder / "verdict.md").read_text(encoding="utf-8")
    create_markdown_artifact(key="compare", markdown=verdict)
    print(verdict)
    return Completed(message=str(folder))


def main() -> int:
    """Run the command line; the result is the exit status."""
    arguments = comparison.parser("flows.compare", __doc__).parse_args()
    exit_when_terminated()
    try:
        wanted = comparison.words(arguments)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    state = compare(
        list(wanted.policies),
        list(wanted.seeds),
        wanted.tokens,
        recipe=wanted.recipe,
        name=wanted.name,
        max_parallel=arguments.max_parallel,
        timeout_hours=arguments.timeout_hours,
        return_state=True,  # pyright: ignore[reportCallIssue]
    )
    return 0 if state.is_completed() else 1


if __name__ == "__main__":
    sys.exit(main())
