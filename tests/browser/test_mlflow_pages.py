"""MLflow's own pages of runs that stages.track has added, in a browser."""

import re

import chromium
import mlflow
import pytest
from selenium.webdriver.support.wait import WebDriverWait
from servers import serve_mlflow
from toy_repo import make_toy_repo

pytestmark = [pytest.mark.browser, pytest.mark.weekly]

SECONDS = 120
"""How long a page may take; on a free machine each takes five."""
HARMLESS = (
    # Who is logged in: without a password there are no users, and MLflow's page asks all the same.
    r"/ajax-api/2\.0/mlflow/users/current - Failed to load resource: .* 404",
    # A layout took more than one frame; the browser finishes it in the next.
    r"ResizeObserver loop completed with undelivered notifications",
)
"""Complaints of MLflow's pages that are none of ours, each for a reason."""


ATTACK = (
    '<script>window.attacked = 1</script><img src="x" onerror="window.attacked = 1">'
    '<a href="javascript:window.attacked=1">link</a> [link](javascript:window.attacked=1) '
    "![x](http://127.0.0.1:9/x.png) \x1b[2J\x07 #### 7"
)
"""What a model may write, and what may stand in a note."""
TEXT = "return document.body.innerText"
PRESENT = """
return [...document.querySelectorAll('img, script, a, iframe')].map(one => one.outerHTML)
  .filter(text => text.includes('attacked') || text.includes('127.0.0.1:9'));
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A repository with two manifests, of runs that differ in a parameter; its texts attack."""
    repo = make_toy_repo(tmp_path_factory.mktemp("tracked") / "toy")
    work = repo.path / "work.py"
    text = work.read_text().replace('"4 #### 4"', repr(ATTACK)).replace("loss/total", "reward/mean")
    work.write_text(text.replace('"First.\\nSecond.\\nThird.\\n"', repr(f"First. {ATTACK}")))
    repo.repro()
    repo.set_params(goal=0.125)
    repo.repro()
    return f"sqlite:///{repo.path}/mlflow.db"


@pytest.fixture(scope="module")
def server(store, tmp_path_factory):
    """The address of an MLflow server on loopback."""
    with serve_mlflow(tmp_path_factory.mktemp("server"), store) as running:
        yield running.url


@pytest.fixture(scope="module")
def held(store):
    """The experiment's id and its runs' ids by name."""
    client = mlflow.MlflowClient(store)
    experiment = client.get_experiment_by_name("posttrain").experiment_id
    runs = client.search_runs([experiment])
    return experiment, {run.info.run_name: run.info.run_id for run in runs}


PAGES = {
    # the run whose name begins so, its page, and texts of it; no run: the list of runs
    "list": (None, "?workflowType=machine_learning", ("manifest",)),
    "manifest": ("manifest", "", ("First.", "points over the baseline", "Report")),
    "curves": ("train dpo", "/model-metrics", ("train dpo", "seed-0", "mean")),
    "completions": ("sample dpo", "/artifacts/completions/test.json", ("completion", "attacked")),
    "verdict": ("compare", "/artifacts/verdict.txt", ("First.", "attacked")),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_shows_what_was_tracked_and_runs_nothing_of_it(driver, server, held, name):
    run, page, texts = PAGES[name]
    experiment, runs = held
    run_id = next((run_id for item, run_id in runs.items() if item.startswith(run or "-")), "")
    chromium.set_width(driver, 1280)
    driver.get("about:blank")
    chromium.complaints(driver)
    chromium.requests(driver)
    driver.get(f"{server}/#/experiments/{experiment}/runs{run_id and '/'}{run_id}{page}")
    WebDriverWait(driver, SECONDS).until(
        lambda _: all(text in driver.execute_script(TEXT) for text in texts),
        message=f"{texts} on {driver.current_url}",
    )
    if run is None:
        assert "train sft" not in driver.execute_script(TEXT), "it lies below a manifest"
    assert chromium.screenshot(driver).std() > 10, "an empty page"
    complaints = chromium.complaints(driver)
    assert [text for text in complaints if not re.search("|".join(HARMLESS), text)] == []
    web = [url for url in chromium.requests(driver) if url.startswith("http")]
    assert [url for url in web if not url.startswith(f"{server}/")] == []
    assert driver.execute_script("return window.attacked") is None
    assert driver.execute_script(PRESENT) == []
