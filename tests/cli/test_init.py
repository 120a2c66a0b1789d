"""`trainmaster init`; that its manifests run is tested in tests/local."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from trainmaster.cli.init import starter_of
from trainmaster.cli.main import cli
from trainmaster.client.kind_name import job_kinds
from trainmaster.client.manifest import check_fields, parse
from trainmaster.core.errors import BadConfig


@pytest.mark.parametrize("name", [each.name for each in job_kinds()])
def test_every_kind_has_a_manifest_of_that_kind_alone(name: str) -> None:
    documents = list(parse(starter_of(name), name))
    (job,) = (document for document in documents if document.is_job)
    check_fields(documents)

    assert job.resource in next(each.resources for each in job_kinds() if each.name == name)


@pytest.mark.parametrize("name", ["aitj", "AITrainingJob", "aitrainingjobs", "aitrainingjobs.elasticdeeplearning.ai"])
def test_a_kind_has_the_names_that_kubectl_knows(name: str) -> None:
    assert "kind: AITrainingJob" in starter_of(name)


def test_an_unknown_kind_is_told_with_those_that_exist() -> None:
    with pytest.raises(BadConfig, match=r"^tfjob is not a kind of job; choose one of .*aitrainingjob, .*mxjob, "):
        starter_of("tfjob")


@pytest.mark.parametrize(
    ("name", "version", "field"),
    [
        pytest.param("dijob", "v2alpha1", "tasks", id="the newer form"),
        pytest.param("dijob-v2alpha1", "v2alpha1", "tasks", id="by its version"),
        pytest.param("DIJob-v1alpha1", "v1alpha1", "coordinator", id="the older form"),
    ],
)
def test_both_forms_of_a_dijob_have_a_manifest(name: str, version: str, field: str) -> None:
    documents = list(parse(starter_of(name), name))
    check_fields(documents)

    assert [document.resource.version for document in documents] == [version]
    assert field in documents[0].body["spec"]


def test_a_file_is_written_once(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    first = CliRunner().invoke(cli, ["init", "dijob", "--output", str(file)])
    again = CliRunner().invoke(cli, ["init", "aitj", "--output", str(file)])

    assert first.output == f"{file} is written; run it with: trainmaster run {file}\n"
    assert file.read_text() == CliRunner().invoke(cli, ["init", "dijob"]).stdout
    assert isinstance(again.exception, BadConfig)
    assert str(again.exception) == f"--output {file}: File exists; choose another file"
