"""Import closure of each study, with the digests of its files: `stages.trace_code` for studies.

Every study depends on its JSON file. So an edit of a study reruns no stage of the pipeline, and an
edit of a stage's code reruns the studies that import it.
"""

from pathlib import Path

from stages import trace_code
from stages.config import read_yaml
from stages.runtime import outputs, process
from studies.study import DEFINITIONS, DVC_YAML, STUDIES

ROOT = Path()
PACKAGE = "studies"


def main() -> None:
    """Write `data/studies/trace_code/<study>.json`."""
    process.die_with_dvc(f"{DVC_YAML}:trace_code")
    graph = trace_code.build_import_graph(ROOT, trace_code.PACKAGE, PACKAGE)
    with outputs.replace(STUDIES / "trace_code") as folder:
        folder.mkdir()
        for study in read_yaml(DEFINITIONS)["stages"]:
            names = trace_code.list_import_closure(graph, f"{PACKAGE}.{study}", ROOT)
            files = {name: ROOT / name for name in (*names, trace_code.CONSTRAINTS)}
            outputs.write_json(folder / f"{study}.json", trace_code.digest_files(files))


if __name__ == "__main__":
    process.run(main)
