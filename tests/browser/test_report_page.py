"""The report page opened from disk in a browser, at desktop and phone width, light and dark."""

import contextlib

import chromium
import numpy as np
import pytest
import report_inputs

from stages import compare

pytestmark = pytest.mark.browser

WIDTHS = (1400, 900, 390)
SECTIONS = ["Policies", "Choosing among samples", "Labels and rewards", "Costs", "Training",
            "Details"]  # fmt: skip
UNFOLD = "for (const one of document.querySelectorAll('details')) one.open = true"
IMAGE_VARIANCE = """
return Promise.all([...document.images].map(async image => {
  await image.decode();
  const canvas = document.createElement('canvas');
  canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
  const context = canvas.getContext('2d');
  context.drawImage(image, 0, 0);
  const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
  let sum = 0, squares = 0;
  for (let place = 0; place < pixels.length; place += 4) {
    const grey = (pixels[place] + pixels[place + 1] + pixels[place + 2]) / 3;
    sum += grey; squares += grey * grey;
  }
  const count = pixels.length / 4;
  return [image.alt, canvas.width, canvas.height, squares / count - (sum / count) ** 2];
}));
"""
OVERLAPS = """
const texts = [...document.querySelectorAll('h1, h2, p, summary, table, .plot, .answer')]
  .filter(one => one.offsetParent)
  .map(one => [one, one.getBoundingClientRect()]);
const found = [];
for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length; j++) {
  const [a, ra] = texts[i], [b, rb] = texts[j];
  if (a.contains(b) || b.contains(a)) continue;
  const width = Math.min(ra.right, rb.right) - Math.max(ra.left, rb.left);
  const height = Math.min(ra.bottom, rb.bottom) - Math.max(ra.top, rb.top);
  if (width > 2 && height > 2 && !a.closest('.table, .plot') && !b.closest('.table, .plot'))
    found.push(a.textContent.slice(0, 40) + ' | ' + b.textContent.slice(0, 40));
}
return found;
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("report")
    with contextlib.chdir(path):
        report_inputs.write()
        compare.main()
    return (path / compare.OUTPUT / "report.html").as_uri()


@pytest.fixture(params=[(width, scheme) for width in WIDTHS for scheme in ("light", "dark")],
                ids=lambda one: f"{one[0]}-{one[1]}")  # fmt: skip
def opened(request, driver, address):
    width, scheme = request.param
    chromium.requests(driver)
    chromium.complaints(driver)
    chromium.set_width(driver, width, scheme=scheme)
    driver.get(address)
    driver.execute_script(UNFOLD)
    return driver, width, scheme


def test_it_opens_without_an_error_or_a_request(opened, address):
    driver, _, _ = opened
    assert chromium.complaints(driver) == []
    assert chromium.requests(driver) == [address]
    assert driver.title == "Post-training, compared"
    found = driver.execute_script(
        "return [...document.querySelectorAll('h2')].map(h => h.textContent)"
    )
    assert found == SECTIONS


def test_nothing_is_wider_than_the_page(opened):
    driver, width, _ = opened
    size = "return [innerWidth, document.documentElement.scrollWidth]"
    assert driver.execute_script(size) == [width] * 2
    assert driver.execute_script(OVERLAPS) == []


def test_every_image_shows_something(opened):
    driver, _, _ = opened
    images = driver.execute_script(IMAGE_VARIANCE)
    assert len(images) == 5
    for alt, width, height, variance in images:
        assert min(width, height) > 0, alt
        assert variance > 100, alt


def test_text_stands_out_from_its_ground(opened, tmp_path):
    driver, width, scheme = opened
    pixels = chromium.screenshot(driver, tmp_path / f"{width}-{scheme}.png", whole=True)
    print(f"screenshot: {tmp_path}/{width}-{scheme}.png")
    brightness = pixels.mean(axis=2)
    paper = np.median(brightness)
    assert (paper > 240) if scheme == "light" else (paper < 40)
    ink = driver.execute_script("return getComputedStyle(document.body).color")
    red, green, blue = (int(part) for part in ink.removeprefix("rgb(").rstrip(")").split(","))
    assert abs((red + green + blue) / 3 - paper) > 150


def test_tables_fit_the_page_and_scroll_in_their_own_box_on_a_phone(opened):
    driver, width, _ = opened
    boxes = driver.execute_script(
        "return [...document.querySelectorAll('.table')].map(b => [b.clientWidth, b.scrollWidth])"
    )
    assert len(boxes) > 10
    assert all(inside <= width for inside, _ in boxes)
    if width == 390:
        assert any(needed > inside for inside, needed in boxes)
    else:
        assert all(needed == inside for inside, needed in boxes)


def test_it_begins_with_the_picture_and_three_sentences_the_rest_is_folded(driver, address):
    chromium.set_width(driver, 900)
    driver.get(address)
    top = driver.execute_script(
        "return ['img', '.verdict:nth-of-type(3)', 'table']"
        ".map(one => document.querySelector(one).getBoundingClientRect().top)"
    )
    assert top == sorted(top)
    assert top[1] < 900
    assert driver.execute_script("return document.querySelectorAll('.verdict').length") == 3
    assert driver.execute_script("return document.querySelectorAll('details[open]').length") == 0


def test_what_a_model_wrote_ran_nothing_and_fetched_nothing(opened):
    driver, _, _ = opened
    assert driver.title != "run"
    assert driver.execute_script("return document.scripts.length") == 0
    cards = driver.execute_script(
        "return [...document.querySelectorAll('.answer pre')].map(pre => pre.textContent)"
    )
    assert report_inputs.ATTACK in cards
