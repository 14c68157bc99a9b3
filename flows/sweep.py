"""Run a grid of parameters on Prefect agents.

    python -m flows.sweep grpo.num_steps=8,16 grpo.optim.learning_rate=1e-4,2e-4

queues four flow runs of the deployment `point/sweep`. Each is `dvc exp run --temp` in the agent's
clone: a copy that shares its cache, so that stages which a point does not change are restored. A
point is an experiment of DVC and a group of MLflow with the same name. --timeout-hours 12 limits
each point.
"""

import re
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from dvc.exceptions import DvcException
from dvc.utils.cli_parse import to_path_overrides
from dvc.utils.hydra import apply_overrides, get_hydra_sweeps
from prefect import flow
from prefect.client.schemas.objects import State
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from flows.agents import check_server, failure_described, heartbeat, make_log
from flows.command_line import make_parser, run
from flows.execute import TAIL_LINES, find_error
from flows.process import DVC, Runner
from flows.share import describe_commit

DEPLOYMENT = "point/sweep"
PARAMS = "params.yaml"
RAW = "data/raw"
DEPLOY = "prefect --no-prompt deploy --name sweep"


@flow(name="point", persist_result=False, retries=0)
def run_point(changes: list[str], commit: str, timeout_hours: float | None = None) -> State:
    """Flow of an agent: run the pipeline with other parameters, in a copy of the agent's clone.

    Args:
        changes: arguments of `dvc exp run -S`, such as `grpo.num_steps=8`.
        commit: of the clone in which the sweep was queued; the agent's must be the same.
        timeout_hours: None: no limit.
    """
    runner = Runner(root=Path.cwd(), log=make_log(), timeout_hours=timeout_hours)
    name, here = name_point(changes), describe_commit(runner.root)
    if here != commit:
        return Failed(message=f"{runner.root}: expected commit {commit}, found {here}: update it")
    untracked: list[str] = []  # git's copy lacks them
    git = ["git", "-c", "core.quotePath=false"]
    runner.run([*git, "ls-files", "--others", "--directory", RAW], untracked.append)
    tail: deque[str] = deque(maxlen=TAIL_LINES)

    def take(line: str) -> None:
        tail.append(line)
        runner.log(line)

    options = [word for change in changes for word in ("--set-param", change)]
    options += [word for path in untracked for word in ("--copy-paths", path.strip())]
    command = [*DVC, "exp", "run", "--temp", "--name", name, *options]
    with heartbeat(UUID(str(flow_run.id)), runner.cancel):
        try:
            status = replace_experiment(
                name, runner.root, lambda: runner.run(command, take, timeout_hours)
            )
        except TimeoutError as error:
            return Failed(message=f"timeout: {error}")
    if status != 0:
        return Failed(message=find_error(tail))
    return Completed(message=f"`dvc exp apply {name}` in {runner.root} has its results")


def replace_experiment(name: str, root: Path, compute: Callable[[], int]) -> int:
    """Exit status of `compute`, whose experiment replaces the present one of its name, if any.

    The present one may have used other files of data/raw; equal results come from the cache. It
    stays if the new one fails.
    """
    runner, aside = Runner(root=root), f"{name}@before"  # this runner is not cancelled
    runner.run([*DVC, "exp", "rename", "--force", name, aside], lambda _: None)
    status = 1
    try:
        status = compute()
    finally:
        words = ["remove", aside] if status == 0 else ["rename", aside, name]
        runner.run([*DVC, "exp", *words], lambda _: None)
    return status


def expand_grid(changes: Sequence[str]) -> list[list[str]]:
    """The points of a grid: every combination of the values, as in `dvc exp run --queue`.

    Raises:
        ValueError: DVC cannot read a change.
    """
    from hydra.errors import HydraException

    for change in changes:
        if not re.match(r"[^=]+=", change):
            raise ValueError(f"expected key=value or key=value,value, found {change!r:.100}")
    try:
        points = get_hydra_sweeps(to_path_overrides(list(changes)))
    except (DvcException, HydraException) as error:
        raise ValueError(f"{' '.join(changes)}: {error}") from None
    return [
        [
            change if path == PARAMS else f"{path}:{change}"
            for path, of_file in point.items()
            for change in of_file
        ]
        for point in points
    ]


def check_changes(point: Sequence[str]) -> None:
    """Raise a ValueError for a key that its file lacks, before DVC would on the agent."""
    with TemporaryDirectory() as folder:
        for path, changes in to_path_overrides(list(point)).items():
            copy = Path(folder, Path(path).name)
            try:
                shutil.copy(path, copy)
                apply_overrides(copy, changes)
            except (DvcException, OSError) as error:
                raise ValueError(f"{path}: {error.__cause__ or error}") from None


def name_point(changes: Sequence[str]) -> str:
    """Name of an experiment, valid for git: `grpo.num_steps=8,seeds=-0-1-`."""
    return re.sub(r"\.(?!\w)|[^\w.,=+-]", "-", ",".join(changes)).lstrip("-")


def queue_points(points: Sequence[Sequence[str]], timeout_hours: float | None) -> None:
    """Queue a flow run for each point, and print its name.

    Raises:
        ValueError: No server answers, it refuses the request, or it has no such deployment.
    """
    check_server(agents_compute=True)
    commit = describe_commit(Path.cwd())
    for changes in points:
        name = name_point(changes)
        parameters = {"changes": changes, "commit": commit, "timeout_hours": timeout_hours}
        try:
            with failure_described():
                run_deployment(DEPLOYMENT, parameters=parameters, flow_run_name=name, timeout=0)
        except ObjectNotFound:
            raise ValueError(f"the server has no deployment {DEPLOYMENT}: `{DEPLOY}`") from None
        print(name)


def main() -> None:
    """Run the command line."""
    parser = make_parser("flows.sweep", __doc__)
    parser.add_argument("changes", nargs="+", metavar="key=value,value")
    parser.add_argument("--timeout-hours", type=float, help="for each point")
    options = parser.parse_args()
    points = expand_grid(options.changes)
    check_changes(points[0])  # the other points have the same keys
    queue_points(points, options.timeout_hours)


if __name__ == "__main__":
    run(main)
