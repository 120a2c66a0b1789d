"""What `helm test` runs, on the node of this machine, with the programs of the chart."""

from pathlib import Path
from typing import Any

import yaml

from deploy.helm import CHART, kind_name
from deploy.manager import ALL
from testbed.helm import Helm
from testbed.plane import ControlPlane
from tests.deploy.conftest import NodeProcess, on_this_machine

Object = dict[str, Any]

PATIENCE = 180.0
NAMESPACE = "--namespace=trainmaster-system"
EVERY_KIND = f"kinds: [{', '.join(map(kind_name, ALL.kinds))}]"
AGGREGATOR = """
apiVersion: nervex.sensetime.com/v1alpha1
kind: AggregatorConfig
metadata: {name: aggregator-config, namespace: trainmaster-system}
spec: {aggregator: {template: {spec: {containers: [{name: aggregator, image: any, command: [sleep, "600"]}]}}}}
"""
"""What every NerveXJob needs."""


def test_helm_test_runs_a_job_of_each_kind_to_its_end(plane: ControlPlane, node: NodeProcess, tmp_path: Path) -> None:
    text = Helm(tmp_path)("template", "trainmaster", CHART, NAMESPACE, values=EVERY_KIND)
    bodies = [body for body in yaml.safe_load_all(text) if body]
    tests = [body for body in bodies if "helm.sh/hook" in body["metadata"].get("annotations", {})]
    others = on_this_machine(yaml.safe_dump_all([body for body in bodies if body not in tests]))
    plane.kubectl("create", "namespace", "trainmaster-system")
    plane.kubectl("create", "--filename=-", input=others)
    plane.kubectl("create", "--filename=-", input=AGGREGATOR)
    available = ("wait", "deployment", "--all", "--for=condition=Available", f"--timeout={PATIENCE:.0f}s", NAMESPACE)
    plane.kubectl(*available, timeout=PATIENCE + 10)

    plane.kubectl("create", "--filename=-", input=yaml.safe_dump_all([as_process(body) for body in tests]))
    ended = "--for=jsonpath={.status.containerStatuses[0].state.terminated}"
    try:
        plane.kubectl("wait", "pod", "trainmaster-test", ended, f"--timeout={PATIENCE:.0f}s", NAMESPACE, timeout=200)
    finally:
        said = plane.kubectl("logs", "trainmaster-test", NAMESPACE)
        print(said)
        phase = plane.kubectl("get", "pod", "trainmaster-test", NAMESPACE, "--output=jsonpath={.status.phase}")
        plane.kubectl("delete", "--filename=-", input=others, timeout=PATIENCE)
        plane.kubectl("delete", "namespace", "trainmaster-system", timeout=PATIENCE)

    assert phase == "Succeeded", said


def as_process(value: Any) -> Any:
    """Without what only containers have, also in the jobs of the ConfigMap."""
    match value:
        case {"kind": "ConfigMap"}:
            jobs = [as_process(job) for job in yaml.safe_load_all(value["data"]["jobs.yaml"])]
            return {**value, "data": {"jobs.yaml": yaml.safe_dump_all(jobs)}}
        case dict():
            return {key: as_process(each) for key, each in value.items() if key != "securityContext"}
        case list():
            return [as_process(each) for each in value]
    return value
