"""deploy/mx-manager.yaml, without a cluster; tests/integration/test_mlkube_walk.py works with its rights."""

from deploy import manager
from deploy.manager import MX


def names_of(kind: str) -> list[str]:
    return [body["metadata"]["name"] for body in manager.bodies(MX) if body["kind"] == kind]


def test_it_has_what_an_mxjob_needs_and_no_more() -> None:
    assert names_of("CustomResourceDefinition") == ["mxjobs.mxnet.mlkube.io"]
    assert names_of("Deployment") == ["mx-operator", "mx-webhook"]
    assert names_of("ServiceAccount") == ["mx-operator", "mx-webhook"]
    assert names_of("ClusterRole") == ["mx-operator", "mx-webhook", "mx-view", "mx-edit"]


def test_its_operator_may_handle_batch_jobs_and_no_other_installation_may() -> None:
    def groups(variant: manager.Variant) -> set[str]:
        roles = [body for body in manager.bodies(variant) if body["kind"] == "ClusterRole"]
        return {group for role in roles for rule in role["rules"] for group in rule["apiGroups"]}

    assert "batch" in groups(MX)
    assert not any("batch" in groups(variant) for variant in manager.VARIANTS)
