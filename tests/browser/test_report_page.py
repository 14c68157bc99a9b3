"""The report page opened from disk in a browser, at desktop and phone width, light and dark."""

import contextlib
import json
import shutil

import pytest
import report_inputs
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys

from stages import compare
from stages.report import page
from stages.report.sections import CaptionedTable, Section

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (BROWSER and DRIVER), reason="no chromium here: run .ci/install-chromium"
    ),
]
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars",
)  # fmt: skip

SECTIONS = ["Policies", "Methods", "Training", "Transcripts", "Choosing among samples",
            "Labels and rewards", "Costs", "Details"]  # fmt: skip
UNFOLD = "for (const one of document.querySelectorAll('details')) one.open = true"
CONTRASTS = """
const parse = colour => colour.match(/[0-9.]+/g).map(Number);
const luminance = ([r, g, b]) => [r, g, b].map(value => value / 255)
  .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
  .reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0);
const ground = node => {
  const [r, g, b, alpha = 1] = parse(getComputedStyle(node).backgroundColor);
  if (alpha === 1) return [r, g, b];
  return node.parentElement ? ground(node.parentElement) : [255, 255, 255];
};
return [...document.querySelectorAll('body, body *')]
  .filter(node => [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()))
  .filter(node => node.offsetParent)
  .map(node => {
    const levels = [parse(getComputedStyle(node).color), ground(node)].map(luminance);
    return [(Math.max(...levels) + 0.05) / (Math.min(...levels) + 0.05),
            node.tagName + ': ' + node.textContent.slice(0, 40)];
  });
"""
"""Of every element with text of its own: contrast with its ground, as WCAG 2 computes it."""
HINTLESS = """
return [...document.querySelectorAll('body *')].filter(node => {
  const style = getComputedStyle(node);
  const cut = node.scrollWidth > node.clientWidth + 1 && style.overflowX !== 'visible';
  const shades = style.backgroundImage.split('linear-gradient').length - 1;
  return cut && !(style.overflowX === 'auto' && shades === 4 && node.tabIndex === 0);
}).map(node => node.outerHTML.slice(0, 80));
"""
"""What is cut, and has no shade at its edge or cannot be scrolled by keyboard."""

OVERLAPS = """
const boxes = [...document.querySelectorAll('h1, h2, p, summary, table, .plot, .answer')]
  .filter(node => node.offsetParent)
  .map(node => [node, node.getBoundingClientRect()]);
return boxes.flatMap(([a, ra], i) => boxes.slice(i + 1).filter(([b, rb]) =>
  !a.contains(b) && !b.contains(a) && !a.closest('.table, .plot') && !b.closest('.table, .plot')
  && Math.min(ra.right, rb.right) - Math.max(ra.left, rb.left) > 2
  && Math.min(ra.bottom, rb.bottom) - Math.max(ra.top, rb.top) > 2
).map(([b]) => a.textContent.slice(0, 40) + ' | ' + b.textContent.slice(0, 40)));
"""
"""Texts that lie over each other."""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A browser with a new, empty profile and nothing cached."""
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield browser
    browser.quit()


def set_width(driver, width, *, scheme="light"):
    """A screen so many pixels wide; a phone's where it is narrow."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def requests(driver):
    """The addresses that the page asked for since the last call, data URIs left out.

    A slow machine's browser still loads its own first page, chrome://newtab, beside it.
    """
    messages = [json.loads(row["message"])["message"] for row in driver.get_log("performance")]
    sent = [row["params"] for row in messages if row["method"] == "Network.requestWillBeSent"]
    urls = [row["request"]["url"] for row in sent if not row["documentURL"].startswith("chrome:")]
    return [url for url in urls if not url.startswith("data:")]


def complaints(driver):
    """What the console says at level SEVERE since the last call: errors and failed loads."""
    return [row["message"] for row in driver.get_log("browser") if row["level"] == "SEVERE"]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("report")
    with contextlib.chdir(path):
        report_inputs.write()
        compare.main()
    return (path / compare.OUTPUT / "report.html").as_uri()


def read_texts(driver, selector):
    script = "return [...document.querySelectorAll(arguments[0])].map(node => node.textContent)"
    return driver.execute_script(script, selector)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 900, 390])
def test_the_page_at_a_width_and_scheme(driver, address, width, scheme):
    requests(driver)
    complaints(driver)
    set_width(driver, width, scheme=scheme)
    driver.get(address)
    driver.execute_script(UNFOLD)
    assert complaints(driver) == []
    assert requests(driver) == [address]
    assert read_texts(driver, "h2") == read_texts(driver, "nav a") == SECTIONS
    size = "return [innerWidth, document.documentElement.scrollWidth]"
    assert driver.execute_script(size) == [width] * 2
    assert driver.execute_script(HINTLESS) == []
    contrasts = driver.execute_script(CONTRASTS)
    assert len(contrasts) > 300
    assert [text for contrast, text in contrasts if contrast < 4.5] == []
    assert driver.execute_script(OVERLAPS) == []
    widths = driver.execute_script("return [...document.images].map(image => image.naturalWidth)")
    assert [number > 0 for number in widths] == [True] * 7
    boxes = driver.execute_script(
        "return [...document.querySelectorAll('.table')].map(b => [b.clientWidth, b.scrollWidth])"
    )
    assert len(boxes) > 10
    assert all(inside <= width for inside, _ in boxes)
    assert any(needed > inside for inside, needed in boxes) == (width == 390)


def test_what_models_wrote_is_read_as_text_and_runs_nothing(driver, address):
    driver.get(address)
    driver.execute_script(UNFOLD)
    assert driver.title != "run"
    parts = driver.execute_script(
        "return ['script + script, main script', 'iframe', 'svg', 'style + style', 'main a', "
        "'meta[http-equiv=refresh]', '[onerror], [onload], [onfocus]', 'img:not([src^=data])']"
        ".map(one => document.querySelectorAll(one).length)"
    )
    assert parts == [0] * len(parts)
    attack = page.escape_invisible(report_inputs.ATTACK)
    assert attack in read_texts(driver, ".answer pre")
    assert any(text.endswith(attack) for text in read_texts(driver, ".question"))
    assert complaints(driver) == []


FAULTY_TABLES = """
return [...document.querySelectorAll('table')].filter(table => !table.caption.textContent
  || [...table.tHead.rows[0].cells].some(c => c.scope !== 'col' || !c.textContent)
  || [...table.tBodies[0].rows].some(row => row.cells[0].scope !== 'row')).length
"""
"""Number of tables without a caption, or with cells of no scope."""


def test_the_answer_the_table_and_both_pictures_are_on_the_first_screen(driver, address):
    def run(script):
        return driver.execute_script(f"return {script}")

    def read_boxes(selectors, side):
        box = "document.querySelector(one).getBoundingClientRect()"
        return run(f"{selectors}.map(one => {box}.{side})")

    set_width(driver, 1440)
    driver.get(address)
    head = ["h1", ".lead", ".head table", ".head .plot", ".head .plot + .plot"]
    ends = read_boxes(head, "bottom")
    assert ends == sorted(ends)
    assert ends[-1] == ends[-2] < 900, "side by side, with their axes"
    top = read_boxes([".lead", ".head", ".verdict", "dl", "nav", "main"], "top")
    assert top == sorted(top)
    assert run("getComputedStyle(document.querySelector('.lead')).fontWeight") == "600"
    assert read_texts(driver, "h1") == [driver.title]
    assert {"Llama", "word_problems"} <= set(driver.title.split())
    assert run("document.querySelectorAll('details[open]').length") == 0
    visible = (
        "[...document.querySelectorAll('.note > p, img')].filter(one => one.checkVisibility())"
    )
    shown = run(f"{visible}.map(one => one.alt || one.textContent)")
    assert any(text.startswith("Learning curve") for text in shown)
    assert not set(read_texts(driver, ".note > p")) & set(shown)
    assert driver.execute_script(FAULTY_TABLES) == 0
    assert "`" not in run("document.querySelector('main').textContent")
    driver.find_elements("css selector", "nav a")[3].click()
    assert read_texts(driver, ":target") == [SECTIONS[3]]


def test_a_table_is_sorted_by_mouse_and_by_keyboard(driver, address):
    set_width(driver, 900)
    driver.get(address)
    first = ".head .table"

    def read_column(number):
        return read_texts(driver, f"{first} tbody tr > :nth-child({number})")

    def sort_states():
        script = "return [...document.querySelectorAll(arguments[0])].map(th => th.ariaSort)"
        return driver.execute_script(script, f"{first} thead th")

    button = "document.querySelectorAll('.head th button')[1]"
    mark = f"return getComputedStyle({button}, '::after').opacity"
    assert driver.execute_script(mark) == "0"
    names, cells = read_column(1), read_column(2)
    rising = sorted(cells, key=lambda text: float(text.split()[0]))
    buttons = driver.find_elements("css selector", f"{first} th button")
    for state, expected in (("descending", rising[::-1]), ("ascending", rising), (None, cells)):
        buttons[1].click()
        assert driver.execute_script(mark) == "1"  # the last time because the mouse is on it
        assert read_column(2) == expected
        assert sort_states() == [None, state, *[None] * (len(buttons) - 2)]
    buttons[1].send_keys(Keys.SHIFT, Keys.TAB)  # to the first column's
    for key, expected in ((Keys.ENTER, sorted(names)), (Keys.SPACE, sorted(names, reverse=True))):
        driver.switch_to.active_element.send_keys(key)
        assert read_column(1) == expected
    assert sort_states()[:2] == ["descending", None]


def test_numbers_are_sorted_as_numbers_and_nothing_last(driver, address, tmp_path):
    cells = ["9", "<0.001", "1,234", "–", "-3.5 [-4, -3]", "+28.0", "", "12.5 %", "0.001"]
    rows = [{"row": str(place), "number": cell} for place, cell in enumerate(cells)]
    (tmp_path / "plots").mkdir()
    page.write_report(tmp_path, "", [], {}, [Section("One", [CaptionedTable("c", rows)])])
    driver.get((tmp_path / "report.html").as_uri())
    button = driver.find_elements("css selector", "th button")[1]
    rising = ["-3.5 [-4, -3]", "<0.001", "0.001", "9", "12.5 %", "+28.0", "1,234"]
    for expected in (rising[::-1], rising):
        button.click()
        assert read_texts(driver, "td") == [*expected, "–", "–"]


def test_print_shows_what_is_folded_on_white(driver, address):
    set_width(driver, 900, scheme="dark")
    driver.get(address)
    driver.execute_cdp_cmd("Page.printToPDF", {})
    folded = "return document.querySelectorAll('details:not([open])').length"
    assert driver.execute_script(folded) == 0
    dark_print = {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dark_print)
    style = "const style = getComputedStyle(document.body); return [style.color, style.background]"
    ink, paper = driver.execute_script(style)
    assert (ink, paper[:18]) == ("rgb(0, 0, 0)", "rgb(255, 255, 255)")
    assert [text for contrast, text in driver.execute_script(CONTRASTS) if contrast < 4.5] == []
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
