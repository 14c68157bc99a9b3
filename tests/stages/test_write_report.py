"""The report page of small inputs."""

import contextlib
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
import report_inputs

from stages import write_report

VOID = {"meta", "link", "img", "br", "hr"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report_inputs.write()
    return tmp_path


class Page(HTMLParser):
    """The elements of a page; an element that is closed wrongly is an error."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.text = [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of one page that several tests read."""
    path = tmp_path_factory.mktemp("page")
    with contextlib.chdir(path):
        report_inputs.write()
        write_report.main()
    return path / write_report.OUTPUT


@pytest.fixture(scope="module")
def text(written):
    return (written / "report.html").read_text(encoding="utf-8")


def test_the_page_is_well_formed_and_every_link_leads_somewhere(text):
    page = Page(text)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    targets = [attributes["href"] for attributes in page.all("a")]
    assert {target[0] for target in targets} == {"#"}
    assert {target[1:] for target in targets} <= set(ids)
    for anchor in ("compare_policies", "transcripts", "difficulty", "lengths", "rewards"):
        assert anchor in ids
    assert "training-train-grpo-grpo" in ids


def test_the_page_names_no_other_file(text):
    page = Page(text)
    images = page.all("img")
    assert len(images) == 6  # the report's, difficulty, lengths, scores, two runs
    for image in images:
        assert image["src"].startswith("data:image/png;base64,")
        assert image["alt"]
    assert not page.all("script")
    assert [link["href"] for link in page.all("link")] == ["data:,"]


def test_what_a_model_wrote_is_text(text):
    page = Page(text)
    # each of the shown problems has this greedy completion of dpo's
    assert page.text.count(report_inputs.ATTACK) == 5
    assert "<script" not in text
    assert "127.0.0.1" not in "".join(str(attributes) for _, attributes in page.elements)
    assert "<b>no HTML</b>" in page.text


def test_numbers_and_plots_are_written_beside_the_page(written):
    metrics = json.loads((written / "metrics.json").read_text(encoding="utf-8"))
    assert [one["problems"] for one in metrics["difficulty"]] == [8] * 5
    changes = metrics["verdict_changes"]["dpo"]
    assert changes["lost"] == changes["wrong_under_both"] == 0
    assert sum(changes.values()) == report_inputs.NUM_PROBLEMS
    names = {path.name for path in (written / "plots").iterdir()}
    assert {"difficulty.csv", "lengths.csv", "training.csv", "difficulty.png"} <= names
    assert "scores-train-reward-model-m-reward-model.png" in names


def test_the_same_inputs_make_the_same_bytes(folder, written):
    write_report.main()

    def contents(output):
        paths = [path for path in output.rglob("*") if path.is_file() and path.parent.name != "run"]
        return {path.relative_to(output): path.read_bytes() for path in paths}

    assert contents(folder / write_report.OUTPUT) == contents(written)


def test_a_report_that_is_not_there_is_named(folder):
    Path("data/compare_policies/report.md").unlink()
    with pytest.raises(FileNotFoundError, match=r"compare_policies/report\.md"):
        write_report.main()
