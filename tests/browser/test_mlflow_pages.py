"""MLflow's own pages of runs that stages.track has added, in a browser."""

import re

import chromium
import mlflow
import numpy as np
import pytest
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.support.wait import WebDriverWait
from servers import serve_mlflow
from toy_repo import make_toy_repo

pytestmark = [pytest.mark.browser, pytest.mark.weekly]

SECONDS = 120
"""How long a page may take; on a free machine each takes five."""
NUM_ATTEMPTS = 5
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


def opened(driver, address, *texts):
    """The page, when it shows all of `texts`."""
    chromium.set_width(driver, 1280)
    driver.get("about:blank")
    chromium.complaints(driver)
    chromium.requests(driver)
    driver.get(address)
    wait_until_shown(driver, *texts)


def wait_until_shown(driver, *texts):
    WebDriverWait(driver, SECONDS).until(
        lambda _: all(text in driver.execute_script(TEXT) for text in texts),
        message=f"{texts} on {driver.current_url}",
    )


def charts(driver):
    """Every chart's pixels that are neither white nor grey, as a share."""
    result = []
    for chart in driver.find_elements("css selector", ".js-plotly-plot"):
        data = chromium.pixels(chart.screenshot_as_png).astype(int)
        result.append(float((np.ptp(data, axis=2) > 40).mean()))
    return result


def open_until_drawn(driver, address, *texts):
    """Open a page, until its charts have colours; five times at most, as a person would: MLflow's
    page sometimes draws nothing, oftener on a busy machine."""

    def are_drawn(_):
        shares = charts(driver)
        return shares and min(shares) > 0.001

    for attempt in range(NUM_ATTEMPTS):
        opened(driver, address, *texts)
        try:
            WebDriverWait(driver, SECONDS / 3).until(are_drawn)
        except TimeoutException:
            if attempt == NUM_ATTEMPTS - 1:
                raise
        else:
            return


def settled(driver, server, path):
    """Take a screenshot; the page has nothing to complain of and asked only its server."""
    assert chromium.screenshot(driver, path).std() > 10, "an empty page"
    complaints = chromium.complaints(driver)
    assert [text for text in complaints if not re.search("|".join(HARMLESS), text)] == []
    web = [url for url in chromium.requests(driver) if url.startswith("http")]
    assert [url for url in web if not url.startswith(f"{server}/")] == []


def test_the_list_of_runs_has_the_manifests_and_their_stages_below(driver, server, held, tmp_path):
    experiment, runs = held
    manifests = [name for name in runs if name.startswith("manifest")]
    path = f"#/experiments/{experiment}/runs?workflowType=machine_learning"
    opened(driver, f"{server}/{path}", *manifests)
    assert "train sft" not in driver.execute_script(TEXT), "it lies below a manifest"
    settled(driver, server, tmp_path / "list.png")


PAGES = {
    # the run whose name begins so, its page, texts of it; whether it has charts
    "manifest": ("manifest", "", ("First.", "points over the baseline", "Report"), False),
    "curves": ("train dpo", "/model-metrics", ("train dpo", "seed-0", "mean"), True),
    "completions": ("sample dpo", "/artifacts/completions/test.json",
                    ("completion", "attacked"), False),
    "verdict": ("compare", "/artifacts/verdict.txt", ("First.", "attacked"), False),
}  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_the_page_of_a_run_with_its(driver, server, held, tmp_path, name):
    run, page, texts, is_drawn = PAGES[name]
    experiment, runs = held
    run_id = next(run_id for item, run_id in runs.items() if item.startswith(run))
    address = f"{server}/#/experiments/{experiment}/runs/{run_id}{page}"
    (open_until_drawn if is_drawn else opened)(driver, address, *texts)
    settled(driver, server, tmp_path / "page.png")
    assert driver.execute_script("return window.attacked") is None
    assert driver.execute_script(PRESENT) == []
