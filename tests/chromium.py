"""A headless Chromium that opens pages and tells what it saw there."""

import io
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars",
)  # fmt: skip


@contextmanager
def started() -> Iterator[webdriver.Chrome]:
    """A browser with a new, empty profile and nothing cached."""
    assert BROWSER, "no Chromium: run .ci/install-chromium"
    assert DRIVER, "no chromedriver: run .ci/install-chromium"
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        try:
            yield driver
        finally:
            driver.quit()


def set_width(driver: webdriver.Chrome, width: int, *, scheme: str = "light") -> None:
    """A screen so many pixels wide; a phone's where it is narrow."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def screenshot(driver: webdriver.Chrome) -> np.ndarray:
    """Red, green and blue of each pixel that is shown, row by row."""
    return np.asarray(Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB"))


def requests(driver: webdriver.Chrome) -> list[str]:
    """The addresses that the page asked for since the last call, data URIs left out.

    A slow machine's browser still loads its own first page, chrome://newtab, beside it.
    """
    result = []
    for row in driver.get_log("performance"):
        message = json.loads(row["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url, asker = message["params"]["request"]["url"], message["params"]["documentURL"]
            if not url.startswith("data:") and not asker.startswith("chrome:"):
                result.append(url)
    return result


def complaints(driver: webdriver.Chrome) -> list[str]:
    """What the console says at level SEVERE since the last call: errors and failed loads."""
    return [row["message"] for row in driver.get_log("browser") if row["level"] == "SEVERE"]
