"""Write which source files each entry point reads, and their digests.

    python -m stages.trace_code

Every other stage depends on the one file `imports/<entry point>.json` that this stage writes: the
import closure of its entry point (found by grimp, Seddon, https://grimp.readthedocs.io) and
constraints.txt, each with its SHA-256. So an edit reruns this stage, which takes a second, and then
the stages whose code it changed, no others; an import that is added is tracked without being
declared anywhere. The files of `rewards/own/`, which entries name, have theirs under
`imports/rewards/own/`.
"""

import json
from pathlib import Path

from stages import import_closure
from stages.runtime import outputs, process, runs

ROOT = Path()
OUTPUT = Path("data/trace_code")


def main() -> None:
    """Write `imports/`."""
    with runs.start("trace_code", OUTPUT) as run:
        graph = import_closure.import_graph(ROOT)
        with outputs.replace(OUTPUT / "imports") as temporary:
            for index, entry in enumerate(import_closure.entries(ROOT)):
                files = import_closure.import_closure(graph, entry, ROOT)
                read = import_closure.digests([*files, import_closure.CONSTRAINTS], ROOT)
                path = temporary.joinpath(*entry.split(".")[1:]).with_suffix(".json")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(read, indent=0) + "\n", encoding="utf-8")
                run.log(index, {"files": len(read)})


if __name__ == "__main__":
    process.run(main)
