import pytest

from trainmaster.core.ids import Resource
from trainmaster.webhook.path import path_of


@pytest.mark.parametrize(
    ("group", "version", "kind", "path"),
    [
        pytest.param(
            "diengine.opendilab.org", "v1alpha1", "DIJob", "mutate-diengine-opendilab-org-v1alpha1-dijob", id="DIJob"
        ),
        pytest.param(
            "nervex.sensetime.com",
            "v1alpha1",
            "NerveXJob",
            "mutate-nervex-sensetime-com-v1alpha1-nervexjob",
            id="NerveXJob",
        ),
    ],
)
def test_the_paths_are_those_of_the_ancestors(group: str, version: str, kind: str, path: str) -> None:
    assert path_of("mutate", Resource(group, version, "", kind)) == f"/{path}"


def test_each_phase_has_its_own() -> None:
    resource = Resource("diengine.opendilab.org", "v1alpha1", "dijobs", "DIJob")

    assert path_of("validate", resource) == "/validate-diengine-opendilab-org-v1alpha1-dijob"
