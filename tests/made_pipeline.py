"""A finished pipeline that no stage has run: dvc.lock, outputs, journals and run records."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dvc.utils.serialize import dump_yaml

from stages.runtime import identity, runs

DVC_YAML = """\
stages:
  train:
    foreach: [sft, dpo, coin]
    do: {cmd: "x ${item}", desc: Trains, outs: ["out/train-${item}"]}
  evaluate:
    foreach: [sft, dpo, coin]
    do: {cmd: "x ${item}", outs: ["out/evaluate-${item}"]}
  compare: {cmd: x, outs: [out/compare]}
  plan: {cmd: x, outs: [out/plan]}
  track: {cmd: x, outs: [out/track]}
"""
START = "2026-01-01T00:00:0{}+00:00"


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def write_journal(path: Path, rows: list[dict[str, float]], *, time: float = 0.0) -> None:
    content = [{"index": i, "time": time + i, "metrics": row} for i, row in enumerate(rows)]
    write(path, "".join(json.dumps(row) + "\n" for row in content))


class MadePipeline:
    """Stages in the working folder; `write` brings dvc.lock up to date."""

    def __init__(self) -> None:
        self.stages: dict[str, dict[str, Any]] = {}
        write(Path(".dvc/config"), "[core]\n    no_scm = true\n")
        write(Path("dvc.yaml"), DVC_YAML)
        write(Path("params.yaml"), "seeds: [0, 1]\n")

    def add(
        self,
        stage: str,
        *,
        execution: str = "1",
        deps: Mapping[str, str] | None = None,
        outs: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        command: str = "",
        ended: int = 2,
        losses: Mapping[int, list[float]] | None = None,
    ) -> None:
        """A stage that was executed here, with journals of seeds; paths with digests."""
        journals = runs.journals_of(stage)
        entry = {
            "cmd": command or f"python {stage}",
            "deps": [{"path": path, "md5": f"md5-{md5}"} for path, md5 in (deps or {}).items()],
            "params": dict(params or {}),
            "outs": [
                {"path": path, "md5": f"md5-{md5}"}
                for path, md5 in {**(outs or {}), journals.as_posix(): f"j{execution}"}.items()
            ],
        }
        self.stages[stage] = entry
        key = identity.lock_key(entry)
        write(journals / runs.KEY_FILE, {"input_key": key, "stage": stage})
        execution_id = f"{execution}{stage}"
        folder = runs.RUNS / stage.replace("@", "/") / f"{key[:16]}-{execution}"
        record = {
            "execution_id": execution_id, "input_key": key, "stage": stage, "attempt": 1,
            "started": START.format(ended - 1), "ended": START.format(ended), "seconds": 1.5,
            "peak_memory_bytes": None, "git_commit": "c0", "git_dirty": False, "host": "h",
            "device": "cpu",
        }  # fmt: skip
        write(folder / "run.json", record)
        for place, time in ((journals, None), (folder, 1e9)):
            write_journal(place / "journal.jsonl", [])
            for seed, values in (losses or {}).items():
                rows = [{"loss": value} | ({"time/step": 0.5} if time else {}) for value in values]
                write_journal(place / f"journal-seed-{seed}.jsonl", rows, time=time or 0.0)
        self.write()

    def write(self) -> None:
        dump_yaml("dvc.lock", {"schema": "2.0", "stages": self.stages})

    def remove_records(self) -> None:
        """As if all had been executed on another machine."""
        shutil.rmtree(runs.RUNS)


def make_pipeline() -> MadePipeline:
    """Two policies of two seeds, their evaluations, the report."""
    made = MadePipeline()
    for policy, start in (("sft", "base"), ("dpo", "sft")):
        model, training = (f"data/policies/{policy}/{name}" for name in ("model", "training"))
        for seed in (0, 1):
            write(Path(model) / f"{seed}/config.json", "{}")
            write(Path(model) / f"{seed}/model.safetensors", f"{policy} {seed}")
            write(Path(training) / f"{seed}/metrics.json", {"final_loss": 0.5 * (seed + 1)})
        made.add(
            f"train@{policy}",
            deps={f"data/policies/{start}/model": f"m{start}.dir", "data/code/train.json": "c",
                  "data/prompts": "p.dir"},
            outs={model: f"m{policy}.dir", training: f"t{policy}.dir"},
            params={"params.yaml": {"rate": 0.5, "seeds": [0, 1]}},
            command=f"python -m stages train_{policy} {policy} --train {policy} --preset p "
            f"--from {start} --on prompts",
            losses={0: [4.0, 2.0], 1: [2.0, 1.0]},
        )  # fmt: skip
        evaluate(made, policy, {"sft": 0.25, "dpo": 0.5}[policy])
    write(Path("data/report/metrics.json"), {
        "policies": {name: {"mean_accuracy": {"value": value}}
                     for name, value in (("sft", 0.25), ("dpo", 0.5))},
        "gains": {"mean_accuracy": {"dpo": {"value": 0.25}}},
    })  # fmt: skip
    write(Path("data/report/verdict.txt"), "First.\nSecond.\n")
    write(Path("data/report/report.html"), "<h1>Report</h1>")
    made.add("compare", deps={"data/evaluations": "e"}, outs={"data/report": "r.dir"}, ended=5)
    return made


def evaluate(
    made: MadePipeline, policy: str, accuracy: float, *, execution: str = "1", ended: int = 3
) -> None:
    """An evaluation of both seeds; on dev problems the second seed is better."""
    folder = f"data/evaluations/{policy}"
    for seed in (0, 1):
        metrics = {"mean_accuracy": accuracy, "dev_accuracy": accuracy + 0.125 * seed}
        write(Path(folder) / f"{seed}/metrics.json", metrics)
    made.add(
        f"evaluate@{policy}",
        execution=execution,
        deps={f"data/policies/{policy}/model": f"m{policy}.dir"},
        outs={folder: f"e{policy}{accuracy}.dir"},
        params={"params.yaml": {"goal": 0.5}},
        ended=ended,
    )
