"""`trainmaster explain`. That every field has a description is tested in tests/crd."""

import pytest
from click.testing import CliRunner

from trainmaster.cli.explain import explanation
from trainmaster.cli.main import cli
from trainmaster.client.kind_name import job_kinds
from trainmaster.core.errors import BadConfig


def explained(path: str, *, recursive: bool = False) -> str:
    return "\n".join(explanation(path, 80, recursive))


def test_a_kind_is_explained_with_its_group_version_and_fields() -> None:
    assert explained("dijob").startswith(
        "GROUP:      diengine.opendilab.org\n"
        "KIND:       DIJob\n"
        "VERSION:    v1alpha1, v2alpha1\n"
        "\n"
        "DESCRIPTION:\n"
        "    A reinforcement-learning job of DI-engine."
    )
    assert "\nFIELDS:\n  spec\t<Object> -required-\n    What the job shall do.\n" in explained("dijob")


def test_a_field_is_explained_with_its_type_default_and_values() -> None:
    lines = explained("aitj.spec.replicaSpecs.restartScope").splitlines()

    assert lines[4:7] == ["FIELD: restartScope <string>", "", "DESCRIPTION:"]
    assert lines[-2].endswith("Default: All.")
    assert lines[-1] == "    Values: All, Pod, Replica."


@pytest.mark.parametrize(
    ("path", "type_"),
    [
        pytest.param("aitj.spec.replicaSpecs", "map[string]Object", id="map of objects"),
        pytest.param("dijob.spec.tasks", "[]Object", id="list of objects"),
        pytest.param("dijob.spec.tasks[0].replicas", "integer", id="entry of a list"),
        pytest.param("dijob.status.startTime", "time", id="time"),
        pytest.param("dijob.status.taskStatus", "map[string]map[string]integer", id="map of maps"),
        pytest.param("mxjob.spec.runPolicy.schedulingPolicy.minResources", "map[string]integer or string", id="amount"),
    ],
)
def test_a_type_is_written_as_kubectl_writes_it(path: str, type_: str) -> None:
    assert f"FIELD: {path.rpartition('.')[2]} <{type_}>" in explained(path)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        pytest.param("aitj.spec.replicaSpecs", "1 to 32 entries", id="entries"),
        pytest.param("aitj.spec.replicaSpecs.restartLimit", "0 or more", id="no upper bound"),
        pytest.param("aitj.spec.priority", "at most 63 characters", id="characters"),
        pytest.param("aitj.spec.elasticReplicas", "1 to 10000", id="numbers"),
        pytest.param("mxjob.spec.jobMode", "MXTrain, MXTune", id="words"),
    ],
)
def test_the_values_that_are_accepted_are_shown(path: str, values: str) -> None:
    assert f"    Values: {values}." in explained(path).splitlines()


@pytest.mark.parametrize("name", [each.name for each in job_kinds()])
def test_every_kind_can_be_explained_by_its_name_in_any_case(name: str) -> None:
    assert explained(f"{name.upper()}.spec") == explained(f"{name}.spec")


@pytest.mark.parametrize(
    ("name", "group"),
    [
        pytest.param("mxjob.kubeflow.org", "kubeflow.org", id="with a group"),
        pytest.param("mxj", "mxnet.mlkube.io", id="short"),
        pytest.param("agconfig", "diengine.opendilab.org", id="not a job"),
        pytest.param("aggregatorconfig.nervex.sensetime.com", "nervex.sensetime.com", id="not a job, with a group"),
    ],
)
def test_a_kind_may_have_its_other_names(name: str, group: str) -> None:
    assert explained(f"{name}.spec").startswith(f"GROUP:      {group}\n")


def test_recursive_prints_the_tree_of_fields_without_descriptions() -> None:
    found = explained("aitj.status.ending", recursive=True)

    assert found.endswith("FIELDS:\n  phase\t<string>\n  clean\t<string>\n  message\t<string>")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        pytest.param("tfjob.spec", "^tfjob is not a kind of job; choose one of dijob, ", id="kind"),
        pytest.param(
            "dijob.spec.tasks.Replica",
            "^DIJob.spec.tasks has no field Replica; did you mean replicas. It has template, maxReplicas, ",
            id="similar field",
        ),
        pytest.param("aitj.spec.x", "^AITrainingJob.spec has no field x; choose one of these. It has ", id="field"),
        pytest.param("aitj.spec.suspend.x", "^AITrainingJob.spec.suspend is of type boolean and has no", id="leaf"),
        pytest.param("aitj.metadata.labels", "^AITrainingJob.metadata.labels is not described here", id="metadata"),
        pytest.param(
            "dijob.spec.tasks.template.spec.tolerations",
            "^DIJob.spec.tasks.template.spec.tolerations is not described here.* see: kubectl explain pod$",
            id="field of a pod",
        ),
    ],
)
def test_what_cannot_be_explained_is_told_with_what_can(path: str, error: str) -> None:
    with pytest.raises(BadConfig, match=error):
        explained(path)


def test_the_command_prints_the_explanation() -> None:
    done = CliRunner().invoke(cli, ["explain", "aitj.spec.suspend"], env={"COLUMNS": "80"})

    assert (done.exit_code, done.stdout) == (0, explained("aitj.spec.suspend") + "\n")
