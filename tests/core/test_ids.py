import pytest

from trainmaster.core.ids import LEASE, POD, Key, Resource


@pytest.mark.parametrize(
    ("resource", "api_version", "name"),
    [
        pytest.param(POD, "v1", "pods", id="core group"),
        pytest.param(LEASE, "coordination.k8s.io/v1", "leases.coordination.k8s.io", id="named group"),
    ],
)
def test_a_resource_is_written_as_kubernetes_writes_it(resource: Resource, api_version: str, name: str) -> None:
    assert (resource.api_version, str(resource)) == (api_version, name)


def test_a_key_is_written_as_namespace_and_name() -> None:
    assert str(Key("ml", "mnist")) == "ml/mnist"
