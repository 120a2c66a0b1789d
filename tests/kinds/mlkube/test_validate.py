"""Bad MxJobs, each with the path of the field."""

import pytest

from tests.build import Json, a_container, a_template, view_of
from tests.kinds.mlkube.build import a_mxjob, a_spec
from trainmaster.core.errors import BadSpec
from trainmaster.kinds.base import Settings
from trainmaster.kinds.mlkube.kind import MxJobKind

KIND = MxJobKind(Settings())
SCHEDULER, SERVER, WORKER = a_spec("SCHEDULER"), a_spec("SERVER"), a_spec("WORKER")


def errors_of(job: Json) -> tuple[str, ...]:
    with pytest.raises(BadSpec) as caught:
        KIND.decode(view_of(job))
    return caught.value.errors


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(a_mxjob(), id="dist"),
        pytest.param(a_mxjob(mode="local"), id="local"),
        pytest.param(a_mxjob(mode="local", specs=[{"template": WORKER["template"]}]), id="a worker by default"),
        pytest.param(a_mxjob("1.st", mode="local"), id="a local job makes no service"),
        pytest.param(a_mxjob("a" * 46), id="63 characters with -scheduler-xxxx-0"),
        pytest.param(a_mxjob("a" * 48, specs=[SCHEDULER, SERVER, WORKER], RuntimeId="xy"), id="a short runtime id"),
        pytest.param(a_mxjob(specs=[WORKER, SERVER, SCHEDULER]), id="in any order"),
        pytest.param(a_mxjob(restartingExitCode="1, 128-143, SIGKILL"), id="exit codes"),
        pytest.param(
            a_mxjob(backoffLimit=0, ttlSecondsAfterFinished=0, activeDeadlineSeconds=1, cleanPodPolicy="All"),
            id="all options",
        ),
        pytest.param(a_mxjob(specs=[SERVER], status={"phase": "Done"}), id="an ended job, whatever it says"),
        pytest.param(a_mxjob(specs=[SERVER], status={"phase": "CleanUp"}), id="a judged job, whatever it says"),
    ],
)
def test_a_good_job_has_no_errors(job: Json) -> None:
    KIND.decode(view_of(job))  # or it raises


@pytest.mark.parametrize(
    ("job", "path", "what"),
    [
        pytest.param(a_mxjob(mode="cloud"), "spec.jobMode", "Invalid enum value 'cloud'", id="an unknown mode"),
        pytest.param(a_mxjob(specs=[SCHEDULER, WORKER]), "spec.replicaSpecs", "needs a SERVER", id="no server"),
        pytest.param(a_mxjob(specs=[SERVER, WORKER]), "spec.replicaSpecs", "needs a SCHEDULER", id="no scheduler"),
        pytest.param(a_mxjob(specs=[SERVER, SCHEDULER]), "spec.replicaSpecs", "needs a WORKER", id="no worker"),
        pytest.param(
            a_mxjob(specs=[SERVER, WORKER, a_spec("SCHEDULER", 2)]),
            "spec.replicaSpecs[2].replicas",
            "there is one SCHEDULER, not 2; set it to 1",
            id="two schedulers",
        ),
        pytest.param(
            a_mxjob(mode="local", specs=[a_spec("WORKER", 2)]),
            "spec.replicaSpecs[0].replicas",
            "jobMode local has one WORKER, not 2",
            id="two local workers",
        ),
        pytest.param(
            a_mxjob(mode="local", specs=[WORKER, SERVER]),
            "spec.replicaSpecs[1].mxReplicaType",
            "jobMode local has one WORKER and no SERVER",
            id="a local server",
        ),
        pytest.param(
            a_mxjob(mode="local", specs=[WORKER, WORKER]),
            "spec.replicaSpecs[1].mxReplicaType",
            "there is another WORKER",
            id="two entries of one type",
        ),
        pytest.param(
            a_mxjob(specs=[a_spec("MASTER"), SERVER, WORKER]),
            "spec.replicaSpecs[0].mxReplicaType",
            "Invalid enum value 'MASTER'",
            id="the type of an older API",
        ),
        pytest.param(
            a_mxjob(specs=[SCHEDULER, a_spec("SERVER", 0), WORKER]),
            "spec.replicaSpecs[1].replicas",
            "Expected `int` >= 1",
            id="no replicas",
        ),
        pytest.param(
            a_mxjob(mode="local", specs=[{"mxReplicaType": "WORKER"}]),
            "spec.replicaSpecs[0]",
            "missing required field `template`",
            id="no template",
        ),
        pytest.param(
            a_mxjob(mode="local", specs=[a_spec("WORKER", template=a_template(a_container("main")))]),
            "spec.replicaSpecs[0].template.spec.containers",
            "none is called mxnet",
            id="no container mxnet",
        ),
        pytest.param(
            a_mxjob(mode="local", specs=[a_spec("WORKER", template=a_template())]),
            "spec.replicaSpecs[0].template.spec.containers",
            "length >= 1",
            id="no container",
        ),
        pytest.param(
            a_mxjob(
                mode="local",
                specs=[a_spec("WORKER", template=a_template(a_container("mxnet"), restartPolicy="Always"))],
            ),
            "spec.replicaSpecs[0].template.spec.restartPolicy",
            "'Always': a batch Job takes OnFailure and Never alone",
            id="Always",
        ),
        pytest.param(a_mxjob("a" * 47), "metadata.name", "shorten the job's name by 1", id="a name too long"),
        pytest.param(
            a_mxjob("a" * 50, mode="local"), "metadata.name", "shorten the job's name by 1", id="a local name too long"
        ),
        pytest.param(a_mxjob("1st"), "metadata.name", "must start with a letter", id="a digit first"),
        pytest.param(a_mxjob(RuntimeId="A_b"), "spec.RuntimeId", "matching regex", id="a bad runtime id"),
        pytest.param(a_mxjob(restartingExitCode="x"), "spec.restartingExitCode", "is no exit code", id="no exit code"),
        pytest.param(a_mxjob(restartingExitCode="9-1"), "spec.restartingExitCode", "empty range", id="an empty range"),
    ],
)
def test_a_bad_job_is_told_which_field_is_wrong(job: Json, path: str, what: str) -> None:
    found = errors_of(job)

    assert any(error.startswith(f"{path}: ") and what in error for error in found), found


def test_everything_that_is_wrong_is_said_at_once() -> None:
    job = a_mxjob("1st", specs=[a_spec("SCHEDULER", 2, template=a_template(a_container("main")))])

    assert [error.split(":")[0] for error in errors_of(job)] == [
        "spec.replicaSpecs",
        "spec.replicaSpecs",
        "spec.replicaSpecs[0].replicas",
        "metadata.name",
        "spec.replicaSpecs[0].template.spec.containers",
    ]


# --- edits ---

PLACES = (SCHEDULER, a_spec("SERVER", 2), a_spec("WORKER", 2))
BEGUN = {"runtimeId": "1kkf"}


def with_edit(type_: str, edit: Json) -> Json:
    return a_mxjob(specs=[spec | edit if spec["mxReplicaType"] == type_ else spec for spec in PLACES], status=BEGUN)


def edit_errors(old: Json, new: Json) -> list[str]:
    return [error.partition(": ")[0] for error in KIND.refused_changes(view_of(old), view_of(new))]


@pytest.mark.parametrize(
    ("type_", "edit", "is_refused"),
    [
        ("WORKER", {"replicas": 3}, True),
        ("WORKER", {"restartScope": "Pod"}, True),
        ("WORKER", {"restartScope": "All"}, False),
        ("SCHEDULER", {"PsRootPort": 9092}, True),
        ("SCHEDULER", {"PsRootPort": 9091}, False),
        ("SERVER", {"template": a_template(a_container("mxnet"), restartPolicy="Never")}, False),
    ],
)
def test_the_members_of_a_job_that_has_begun_stay_as_they_are(type_: str, edit: Json, is_refused: bool) -> None:
    new = with_edit(type_, edit)

    assert edit_errors(a_mxjob(specs=PLACES, status=BEGUN), new) == ["spec.replicaSpecs"] * is_refused
    assert edit_errors(a_mxjob(specs=PLACES), new) == []


def test_the_mode_of_a_job_that_has_begun_stays_as_it_is() -> None:
    worker = a_spec("WORKER")

    old, new = (a_mxjob(mode=mode, specs=[worker], status=BEGUN) for mode in ("local", "dist"))

    assert edit_errors(old, new) == ["spec.replicaSpecs"]


def test_a_stored_job_that_cannot_be_decoded_is_not_compared() -> None:
    assert edit_errors(a_mxjob(specs=[{}], status=BEGUN), a_mxjob()) == []
