"""Write which source files each entry point reads, and their digests.

    python -m stages.trace_code

Every other stage depends on the one file `code/<entry point>.json` that this stage writes: the
import closure of its entry point (found by grimp, Seddon, https://grimp.readthedocs.io) and
constraints.txt, each with its SHA-256. So an edit reruns this stage, which takes a second, and then
the stages whose code it changed, no others; an import that is added is tracked without being
declared anywhere. Studies have theirs under `code/studies/`, and the files of `rewards/own/`, which
rows name as `own/<file>`, under that name.
"""

import json
from pathlib import Path

from stages import import_closure
from stages.import_closure import OWN_PACKAGE, PACKAGE
from stages.runtime import outputs, parent, process

ROOT = Path()
DATA = Path("data")


def main() -> None:
    """Write `code/` and `own/`."""
    parent.die_with_dvc("trace_code")
    graph = import_closure.import_graph(ROOT)
    with outputs.replace(DATA / "code") as code, outputs.replace(DATA / "own") as own:
        code.mkdir()
        own.mkdir()
        for entry in import_closure.entries(ROOT):
            files = import_closure.import_closure(graph, entry, ROOT)
            read = import_closure.digests([*files, import_closure.CONSTRAINTS], ROOT)
            if entry.startswith(OWN_PACKAGE):
                path = own / entry.removeprefix(f"{OWN_PACKAGE}.")
            else:
                name = entry.removeprefix(f"{PACKAGE}.").replace(".", "/")
                path = code / f"{name}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(read, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    process.run(main)
