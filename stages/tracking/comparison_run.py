"""One MLflow run for one comparison at equal tokens, found again by its name and results."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlflow.entities import Metric

from stages.tracking import flat, stage_run
from stages.tracking.store import Store

DIGEST = "posttrain.comparison"


def sync(store: Store, name: str, folder: Path) -> bool:
    """Add the comparison, unless it is there; whether it was added.

    Args:
        store: the store.
        name: of the comparison.
        folder: of `verdict.md` and `metrics.json`.
    """
    content = (folder / "metrics.json").read_bytes()
    verdict = (folder / "verdict.md").read_bytes()
    digest = hashlib.sha256(b"\0".join([name.encode(), content, verdict])).hexdigest()
    run = stage_run.find(store, DIGEST, digest)
    if run is not None and (
        stage_run.COMPLETE in run.data.tags or run.info.lifecycle_stage != "active"
    ):
        return False
    if run is None:
        tags = {DIGEST: digest, "posttrain.stage": "compare"}
        run = store.client.create_run(store.experiment_id, tags=tags, run_name=f"compare {name}")
    run_id, found = run.info.run_id, json.loads(content)
    policies = sorted({row["policy"] for row in found["spent"]})
    words = {
        "tokens": found["tokens"],
        "policies": ",".join(policies),
        "seeds": ",".join(map(str, sorted({row["seed"] for row in found["spent"]}))),
        "num_problems": found["num_problems"],
    }
    stage_run.log_params(store, run_id, words)
    time = run.info.start_time
    metrics = [Metric(flat.name(key), value, time, 0) for key, value in numbers(found)]
    for batch in flat.batches(metrics, stage_run.MAX_METRICS):
        store.client.log_batch(run_id, metrics=batch)
    for file in ("verdict.md", "metrics.json"):
        store.client.log_artifact(run_id, str(folder / file))
    store.client.set_tag(run_id, stage_run.COMPLETE, "true")
    store.client.set_terminated(run_id, "FINISHED")
    return True


def numbers(found: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """(name, value) of accuracies, paired differences and what each policy and seed spent."""
    yield from flat.numbers({"policies": found["policies"]}).items()
    for kind in ("pairs", "gains"):
        for measure, rows in found[kind].items():
            for row in rows:
                place = f"{kind}.{measure}.{row['first']}-{row['second']}"
                yield from ((f"{place}.{key}", value) for key, value in flat.numbers(row).items())
    for row in found["spent"]:
        place = f"spent.{row['policy']}.seed-{row['seed']}"
        for key in ("before", "generated", "trained", "total", "seconds"):
            yield f"{place}.{key}", float(row[key])
