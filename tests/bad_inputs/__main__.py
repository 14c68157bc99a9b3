"""Write down what is told of every bad input now, to be read before it is committed.

PYTHONPATH=.:tests python -m bad_inputs
"""

import contextlib
import tempfile

from bad_inputs import meeting

with meeting.entry_points():
    for name, kind in meeting.KINDS.items():
        parts = []
        for case in kind.cases:
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                meeting.put_in(kind, case)
                text = meeting.told(kind).replace("\n", "\n    ")
            parts.append(f"{case.given}\n    {text}\n")
        meeting.TOLD.mkdir(exist_ok=True)
        (meeting.TOLD / f"{name}.txt").write_text("\n".join(parts), encoding="utf-8")
