"""What jobs request beside what the machine has."""

from typing import Any

import pytest

from tests.manifests.build import aitrainingjob, container, coordinated, replica, template
from trainmaster.cli import demand
from trainmaster.client.manifest import Document, document_of
from trainmaster.core.errors import BadConfig

ROOM = {"cpu": "2", "memory": "8Gi"}


def job(count: int = 1, **resources: Any) -> Document:
    main = container("main", command=["true"], resources=resources)
    return document_of(aitrainingjob(replicaSpecs={"worker": replica(main, replicas=count)}), "job.yaml, document 1")


@pytest.mark.parametrize(
    ("gpus", "environ", "message"),
    [
        ((), {}, "a pod requests 2 GPUs, and this machine has none; "),
        (("1",), {"CUDA_VISIBLE_DEVICES": "1"}, r"has 1 GPUs \(CUDA_VISIBLE_DEVICES=1\); "),
    ],
)
def test_a_pod_with_more_gpus_than_the_machine_is_an_error_that_says_how_to_run_without(
    gpus: tuple[str, ...], environ: dict[str, str], message: str
) -> None:
    documents = [job(limits={"nvidia.com/gpu": 2})]
    assert demand.requests_gpus(documents)
    with pytest.raises(BadConfig, match=message) as caught:
        demand.check_gpus(documents, gpus, environ)

    path = r"spec.replicaSpecs.worker.template.spec.containers[0].resources.limits.nvidia\.com/gpu"
    assert str(caught.value).endswith(f"to run without, add: --set '{path}=0'")


def test_pods_that_fit_one_after_the_other_are_no_error() -> None:
    demand.check_gpus([job(4, limits={"nvidia.com/gpu": 2})], ("0", "1"), {})


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(job(2, requests={"cpu": "1", "memory": "4Gi"}), [], id="fits"),
        pytest.param(job(3, limits={"cpu": "700m"}), ["2.1 CPUs, and this machine has 2"], id="sum of the replicas"),
        pytest.param(job(limits={"memory": "1Ti"}), ["1099511627776 bytes of memory"], id="memory"),
        pytest.param(job(limits={"cpu": "many"}), [], id="no quantity"),
    ],
)
def test_a_job_that_requests_more_than_the_machine_has_is_warned_of(document: Document, expected: list[str]) -> None:
    found = list(demand.warnings([document], ROOM))

    assert len(found) == len(expected)
    assert all(part in sentence for part, sentence in zip(expected, found, strict=True))


def test_templates_of_all_shapes_are_found() -> None:
    main = container("c", command=["true"], resources={"limits": {"nvidia.com/gpu": 1}})
    serial = document_of(coordinated(template(main)), "x")
    pod = document_of(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [main]}}, "x"
    )

    assert [each.path for each in demand.demands_of(serial)] == [("spec", "coordinator", "template", "spec")]
    assert [each.path for each in demand.demands_of(pod)] == [("spec",)]
