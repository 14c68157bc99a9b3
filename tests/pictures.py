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
import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from PIL import Image
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
SECONDS, PAUSE_SECONDS = 120, 2
"""How long MLflow's page may take, and a change of what it shows."""
PIXELS = 1300
"""Width of MLflow's page."""
HIDDEN = ("Dataset", "Source", "Models")
SHOWN = ("accuracy", "greedy_accuracy", "reward", "heldout_accuracy", "trained_tokens")
"""Columns of the table besides name, time and duration, and those of MLflow's own that are not."""


def draw_live() -> str:
    """The display after the last event, as SVG."""
    events = [json.loads(line) for line in EVENTS.read_text(encoding="utf-8").splitlines()]
    begun, seconds = dict[str, float](), 0.0
    console = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True,
                      color_system="truecolor", legacy_windows=False)  # fmt: skip
    display = StageLines(console, is_quiet=False)
    with patch("flows.display.time", SimpleNamespace(monotonic=lambda: seconds)):
        for event in events:
            stage, seconds = event["stage"], event["seconds"]
            match event["event"]:
                case "begin":
                    begun[stage] = seconds
                    display.begin(stage)
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
    """MLflow's own table of the newest manifest and its stages, as PNG of few colours."""
    sys.path.append(str(Path(__file__).parent))
    import mlflow
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.wait import WebDriverWait
    from servers import serve_mlflow

    store = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{Path('mlflow.db').resolve()}")
    experiment = mlflow.MlflowClient(store).get_experiment_by_name("posttrain")
    assert experiment is not None, f"{store} has no experiment posttrain: call posttrain track"
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", f"--window-size={PIXELS},900"):
        options.add_argument(flag)
    with (
        tempfile.TemporaryDirectory() as folder,
        serve_mlflow(Path(folder), store) as server,
        webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver"))) as driver,
    ):
        page = f"#/experiments/{experiment.experiment_id}/runs?workflowType=machine_learning"
        driver.get(f"{server.url}/{page}")
        WebDriverWait(driver, SECONDS).until(
            lambda _: "manifest" in driver.execute_script("return document.body.innerText")
        )
        driver.execute_script("document.querySelector('[aria-label=Close]')?.click()")
        expander = (By.CSS_SELECTOR, "[data-component-id*=runnamecellrenderer]")
        WebDriverWait(driver, SECONDS).until(lambda _: driver.find_elements(*expander))[0].click()
        buttons = driver.find_elements(By.TAG_NAME, "button")
        next(button for button in buttons if button.text.strip() == "Columns").click()
        time.sleep(PAUSE_SECONDS)
        box = driver.find_element(By.CSS_SELECTOR, "[placeholder='Search columns']")
        for column in (*HIDDEN, *SHOWN):
            box.send_keys(Keys.CONTROL, "a")
            box.send_keys(column)
            time.sleep(PAUSE_SECONDS)
            for node in driver.find_elements(By.CSS_SELECTOR, "[class*=tree-treenode]"):
                if node.text.strip() == column:
                    node.find_element(By.CSS_SELECTOR, "[class*=checkbox]").click()
                    break
        box.send_keys(Keys.ESCAPE)
        time.sleep(PAUSE_SECONDS)
        shown = Image.open(io.BytesIO(driver.get_screenshot_as_png()))
        image = shown.convert("RGB").quantize(64)
    with io.BytesIO() as file:
        image.save(file, "PNG", optimize=True)
        return file.getvalue()


if __name__ == "__main__":
    LIVE.write_text(draw_live(), encoding="utf-8")
    if "live" not in sys.argv[1:]:
        TABLE.write_bytes(show_table())
