"""What a model, a data set or a name could hold to get out of its place in the report: in a browser
it runs nothing, fetches nothing, turns nothing around, and is read as the text that it is."""

import chromium
import pytest

from stages.records import lines
from stages.records.problems import Prompt
from stages.report import page, plots
from stages.report.estimates import BEST_TEMPERATURE, MEAN
from stages.report.page import escape_invisible
from stages.report.sections import CaptionedTable, Section
from stages.report.transcripts import Transcript

pytestmark = [pytest.mark.browser, pytest.mark.slow]

RUN = "document.title='run'"
ATTACKS = [
    f"<script>{RUN}</script>",
    f"</pre></div></td><script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f"<svg onload={RUN}><foreignObject><iframe srcdoc='<script>parent.{RUN}</script>'>",
    f'" autofocus onfocus={RUN} x="',
    "<!-- <style>body{display:none}</style> <meta http-equiv=refresh content=0>",
    "<a href=javascript:alert(1)>press</a> [x](javascript:alert(1)) ![x](http://127.0.0.1:9/x)",
    "{{ 7 * 7 }} {% raw %} ${7*7} &lt;b&gt; &amp;amp;",
    "\x1b[2J\x1b]0;run\x07\x9b31m \r\x00\b\x7f done",
    "\u202egnp.exe\u202c \u2066\u200f \u061c done",
    "half \ud83d done",
    "| a | b |\n|---|---|\n# big\n</details>",
]
NAME = f"<img src=name onerror={RUN}>"
"""`plan` refuses it: see tests/bad_inputs."""


ONE = {"value": 0.5, "low": 0.4, "high": 0.6, "seeds": {"0": 0.5}}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report in which every question, answer and completion is one of these, and a name too."""
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "plots").mkdir()
    rows = [
        Prompt(id=item, task="solve", question=item, prompt=item, prompt_ids=[1], answer=item)
        for item in ATTACKS
    ]
    lines.write_lines(folder / "prompts.jsonl", rows)
    assert list(lines.read_lines(folder / "prompts.jsonl", Prompt)) == rows
    transcripts = [Transcript(row, row.question, [(NAME, row.question, True)]) for row in rows]
    policies = {name: {MEAN: ONE, BEST_TEMPERATURE: ONE} for name in ("sft", NAME)}
    best = {"sampled": 1.0, "policies": {name: {"best": 0.5} for name in policies}}
    metrics = {"policies": policies, "seeds": [0], "baseline": "sft", "temperatures": best}
    plots.draw_accuracy(folder / "plots", metrics | {"num_problems": 4, "confidence": 0.95})
    table = CaptionedTable(NAME, [{"policy": NAME, "%": "1"}])
    parts = [Section("Policies", [table, Section(NAME, [*transcripts])])]
    page.write_report(folder, NAME, ["One."], {"Model": NAME}, parts)
    return folder


@pytest.fixture
def opened(driver, report):
    chromium.requests(driver)
    chromium.complaints(driver)
    chromium.set_width(driver, 1400)
    driver.get((report / "report.html").as_uri())
    driver.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    return driver


def test_nothing_ran_and_nothing_was_fetched(opened, report):
    assert opened.title == NAME
    result = opened.execute_script(
        "return ['script + script, main script', 'iframe', 'svg', 'style + style', 'main a', "
        "'meta[http-equiv=refresh]', "
        "'[onerror], [onload], [onfocus]', 'img:not([src^=data])', 'h3']"
        ".map(one => document.querySelectorAll(one).length)"
    )
    assert result == [0] * len(result)
    assert chromium.complaints(opened) == []
    assert chromium.requests(opened) == [(report / "report.html").as_uri()]


def test_each_is_read_as_the_text_that_it_is(opened):
    cards = opened.execute_script(
        "return [...document.querySelectorAll('.answer pre')].map(pre => pre.textContent)"
    )
    questions = opened.execute_script(
        "return [...document.querySelectorAll('article')]"
        ".map(article => [...article.querySelectorAll(':scope > p')]"
        ".map(p => p.textContent).join(' ').split(/\\s+/).join(' '))"
    )
    escaped = [escape_invisible(item) for item in ATTACKS]
    assert cards == escaped
    assert len(questions) == len(escaped)
    for item, question in zip(escaped, questions, strict=True):
        assert question.count(" ".join(item.split())) == 4
    names = opened.execute_script(
        "return [...document.querySelectorAll('tbody th')].map(th => th.textContent)"
    )
    assert NAME in names


def test_a_name_in_a_plot_is_text(driver, report):
    path = report / "plots/accuracy.svg"
    assert "&lt;img src=name" in path.read_text(encoding="utf-8")
    driver.get(path.as_uri())
    result = "return document.querySelectorAll('script, img, foreignObject').length"
    assert driver.execute_script(result) == 0
    assert driver.title != "run"
    assert chromium.complaints(driver) == []
