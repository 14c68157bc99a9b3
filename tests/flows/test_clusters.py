"""Settings of flows/clusters.md against the workers that would read them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from prefect.utilities.templating import apply_values
from ruamel.yaml import YAML

FLOWS = Path(__file__).resolve().parents[2] / "flows"


def read_deployments() -> Iterator[dict[str, Any]]:
    page = (FLOWS / "clusters.md").read_text(encoding="utf-8")
    for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL):
        yield from YAML(typ="safe").load(block)


def job_variables(heading: str) -> dict[str, Any]:
    page = (FLOWS / "clusters.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    (deployment,) = YAML(typ="safe").load(block)
    return deployment["work_pool"]["job_variables"]


def test_deployments_are_those_that_pipelines_ask_for() -> None:
    deployments = list(read_deployments())
    assert [deployment["name"] for deployment in deployments] == ["gpu", "gpu"]
    for deployment in deployments:
        assert deployment["entrypoint"] == "flows/agents.py:stage"
        # AgentRun.submit reads the deployment stage/<pool>
        assert deployment["name"] == deployment["work_pool"]["name"]


def test_slurm_worker_accepts_the_job_variables() -> None:
    config = pytest.importorskip("prefect_slurm.config", reason="needs the extra `clusters`")
    variables = job_variables("Slurm")
    fields = config.SlurmWorkerTemplateVariables.model_fields
    assert set(variables) <= set(fields)
    values = config.SlurmWorkerTemplateVariables(**variables)
    assert (values.cpu, values.memory, values.time_limit) == (8, 64, 12)


def make_job(variables: dict[str, Any]) -> dict[str, Any]:
    worker = pytest.importorskip("prefect_kubernetes.worker", reason="needs the extra `clusters`")
    template = json.loads((FLOWS / "kubernetes.json").read_text(encoding="utf-8"))
    properties = template["variables"]["properties"]
    assert set(variables) <= set(properties)
    values = {
        name: field["default"] for name, field in properties.items() if "default" in field
    } | variables
    configuration = worker.KubernetesWorkerJobConfiguration(
        **apply_values(template["job_configuration"], values)
    )
    return configuration.job_manifest


def test_kubernetes_worker_makes_a_pod_with_gpus_and_the_clone() -> None:
    job = make_job(job_variables("Kubernetes"))
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "registry.example/posttrain:1"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 1, "memory": "64Gi"}
    assert container["resources"]["requests"] == {"cpu": "8", "memory": "64Gi"}
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "posttrain"
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert container["workingDir"].startswith(mounts["clone"] + "/")


def test_a_kubernetes_pool_without_an_image_is_refused() -> None:
    template = json.loads((FLOWS / "kubernetes.json").read_text(encoding="utf-8"))
    with pytest.raises(jsonschema.ValidationError, match="image"):
        jsonschema.validate({"gpus": 1}, template["variables"])
