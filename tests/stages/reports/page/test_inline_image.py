"""Images as data URIs."""

import base64
import io
import re

import numpy as np
import pytest
import report_inputs
from PIL import Image

from stages.reports.page import inline_image


def pixels(tag):
    data = re.search(r'base64,([^"]+)"', tag)[1]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")).astype(int)


def test_a_plot_looks_as_before_and_is_smaller(tmp_path):
    path = tmp_path / "x.png"
    report_inputs.line(path)
    before = np.asarray(Image.open(path).convert("RGB")).astype(int)
    after = pixels(inline_image.tag(path, alt="a line"))
    assert after.shape == before.shape == (100, 200, 3)
    assert np.abs(after - before).max() < 32
    assert np.abs(after - before).mean() < 1
    assert len(inline_image.palette(path)[0]) < path.stat().st_size


def test_what_is_transparent_is_white(tmp_path):
    Image.new("RGBA", (2, 2), (0, 0, 0, 0)).save(tmp_path / "x.png")
    assert (pixels(inline_image.tag(tmp_path / "x.png", alt="nothing")) >= 250).all()


def test_what_is_no_png_is_refused(tmp_path):
    path = tmp_path / "x.png"
    with pytest.raises(ValueError, match="no such file"):
        inline_image.tag(path, alt="a")
    path.write_text("<svg/>")
    with pytest.raises(ValueError, match="Expected a PNG"):
        inline_image.tag(path, alt="a")
    report_inputs.line(path)
    with pytest.raises(ValueError, match="description"):
        inline_image.tag(path, alt=" ")
