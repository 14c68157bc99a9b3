"""The picture of the live display that README links: `python -m tests.pictures` draws it anew.

The events of live_display.jsonl are those that `posttrain run -j 2` took from stages of the default
run on two cores: which began and ended when, and the last lines of those at work.
"""

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from flows.display import StageLines
from flows.execute import Result, StageOutcome

EVENTS = Path(__file__).with_name("live_display.jsonl")
LIVE = Path("data/live.svg")
WIDTH = 92
"""Columns of the terminal."""
WITHOUT_FONTS = re.sub(r"(?s)@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT)
"""A page that fetches nothing from the web."""


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
                    display.end(stage, Result(outcome=StageOutcome.EXECUTED, seconds=spent))
        console.print(display._draw())
    return console.export_svg(
        title="posttrain run -j 2", code_format=WITHOUT_FONTS, unique_id="live"
    )


if __name__ == "__main__":
    LIVE.write_text(draw_live(), encoding="utf-8")
