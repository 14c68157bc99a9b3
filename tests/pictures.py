"""Pictures that README links: the live display of a run, and MLflow's table of the default run.

    python -m tests.pictures            both; the second needs Chromium (.ci/install-chromium)
    python -m tests.pictures live       data/live.svg, from the events of live_display.jsonl

The events are those that `posttrain run -j 2` took from stages of the default run on two cores:
which began and ended when, and the last lines of those at work. The table is that of the store
which `posttrain track` has filled, MLFLOW_TRACKING_URI or mlflow.db.
"""

import io
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from flows.display import StageLines
from flows.execute import Result, StageOutcome

EVENTS = Path(__file__).with_name("live_display.jsonl")
LIVE, TABLE = Path("data/live.svg"), Path("data/mlflow.png")
WIDTH = 92
"""Columns of the terminal."""
WITHOUT_FONTS = re.sub(r"(?s)@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT)
"""A page that fetches nothing from the web."""
SECONDS = 120
"""How long MLflow's page may take."""


def draw_live() -> str:
    """The display after the last event, as SVG."""
    events = [json.loads(line) for line in EVENTS.read_text(encoding="utf-8").splitlines()]
    now, begun = events[-1]["seconds"], dict[str, float]()
    console = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True,
                      color_system="truecolor", legacy_windows=False)  # fmt: skip
    display = StageLines(console, is_quiet=False)
    for event in events:
        stage, seconds = event["stage"], event["seconds"]
        match event["event"]:
            case "begin":
                begun[stage] = seconds
                display.begin(stage)
                display._begun[stage] = time.monotonic() - (now - seconds)
            case "show":
                display.show(stage, event)
            case "end":
                spent = seconds - begun[stage]
                display.end(Result(name=stage, outcome=StageOutcome.EXECUTED, seconds=spent))
    console.print(display._draw())
    return console.export_svg(
        title="posttrain run -j 2", code_format=WITHOUT_FONTS, unique_id="live"
    )


def show_table() -> bytes:
    """MLflow's own table of runs, as PNG."""
    sys.path.append(str(Path(__file__).parent))
    import chromium
    import mlflow
    from selenium.webdriver.support.wait import WebDriverWait
    from servers import serve_mlflow

    store = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{Path('mlflow.db').resolve()}")
    experiment = mlflow.MlflowClient(store).get_experiment_by_name("posttrain")
    assert experiment is not None, f"{store} has no experiment posttrain: call posttrain track"
    with (
        tempfile.TemporaryDirectory() as folder,
        serve_mlflow(Path(folder), store) as server,
        chromium.started() as driver,
    ):
        chromium.set_width(driver, 1280)
        page = f"#/experiments/{experiment.experiment_id}/runs?workflowType=machine_learning"
        driver.get(f"{server.url}/{page}")
        WebDriverWait(driver, SECONDS).until(
            lambda _: "manifest" in driver.execute_script("return document.body.innerText")
        )
        return driver.get_screenshot_as_png()


if __name__ == "__main__":
    LIVE.write_text(draw_live(), encoding="utf-8")
    if "live" not in sys.argv[1:]:
        TABLE.write_bytes(show_table())
