"""The API server's answers say by which FlowSchema a request was classified."""

import http.client
import ssl
from urllib.parse import urlsplit

import pytest

from testbed.admin import path_of
from testbed.operator import install
from testbed.plane import ControlPlane

pytestmark = pytest.mark.cluster

FLOW_SCHEMAS = "flowcontrol.apiserver.k8s.io/v1/flowschemas"


@pytest.mark.parametrize(
    ("user", "path", "schema"),
    [
        ("operator", path_of("pods"), "trainmaster-manager"),
        ("server", path_of("diengine.opendilab.org/v1alpha1/dijobs"), "trainmaster-manager"),
        ("operator", path_of("coordination.k8s.io/v1/leases", "kube-system", "x"), "trainmaster-leases"),
    ],
    ids=["of the operator", "of di-server", "for a Lease"],
)
def test_a_request_has_the_priority_of_the_installation(plane: ControlPlane, user: str, path: str, schema: str) -> None:
    install(plane)
    expected = plane.request("GET", path_of(FLOW_SCHEMAS, name=schema))["metadata"]["uid"]

    assert _schema_of(plane, user, path) == expected


def _schema_of(plane: ControlPlane, user: str, path: str) -> str | None:
    address = urlsplit(plane.url)
    tls = ssl.create_default_context(cafile=str(plane.ca_file))
    connection = http.client.HTTPSConnection(address.hostname or "", address.port, context=tls, timeout=30)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {plane.token(user)}"})
        response = connection.getresponse()
        response.read()
        return response.getheader("X-Kubernetes-PF-FlowSchema-UID")
    finally:
        connection.close()
