from typing import Any

import pytest

from tests.build import a_container, a_dijob, a_ditask, a_nervexjob, a_replica, a_task, a_template, an_aitj, kind_of
from tests.webhook.build import Json
from trainmaster.kinds.admission_hints import Custom
from trainmaster.webhook.warning import LONGEST, MOST, warnings_of

RUN = a_container("di-container", command=["run"])
TRAIN = a_container("aitj-main", args=["--epochs", "3"])


def said_of(job: Json) -> list[str]:
    return warnings_of(job, kind_of(job).custom)


def coordinated(*containers: Json, **spec: Any) -> Json:
    return a_dijob(coordinator=a_template(*containers, **spec))


def an_mlkube_job(*containers: Json, **spec: Any) -> Json:
    worker = {"mxReplicaType": "WORKER", "template": a_template(*containers, **spec)}
    return {"apiVersion": "mxnet.mlkube.io/v1beta1", "kind": "MxJob", "spec": {"replicaSpecs": [worker]}}


PATH = "spec.coordinator.template.spec"


@pytest.mark.parametrize(
    ("job", "warning"),
    [
        pytest.param(
            coordinated(RUN) | {"spec": coordinated(RUN)["spec"] | {"collector": {"template": a_template(RUN)}}},
            "spec.learner: is missing beside spec.collector; a learner that the job asks for has no template",
            id="collector without learner",
        ),
        pytest.param(
            coordinated(a_container("main", command=["run"])),
            f"{PATH}.containers: none is called di-container; "
            "it gets no port di-port, and all containers of the template have to end",
            id="no main container",
        ),
        pytest.param(
            coordinated(RUN, restartPolicy="Always"),
            f"{PATH}.restartPolicy: with Always the coordinator is started again when it has finished, "
            "so the job never ends; use Never or OnFailure",
            id="never ends",
        ),
        pytest.param(
            coordinated(RUN, hostNetwork=True),
            f"{PATH}.hostNetwork: no container declares a port, so none is set aside; "
            "two pods on one node may want the same",
            id="on the host without ports",
        ),
        pytest.param(
            a_dijob(coordinator=a_template(RUN) | {"metadata": {"finalizers": ["example.org/hold"]}}),
            "spec.coordinator.template.metadata.finalizers: a pod that is deleted stays until they are removed, "
            "and until then no other takes its place",
            id="finalizers",
        ),
        pytest.param(
            coordinated(a_container("di-container", image="")),
            f"{PATH}.containers[0].image: is missing; the API server will refuse the pod",
            id="no image",
        ),
        pytest.param(
            coordinated(a_container("di-container")),
            f"{PATH}.containers[0].command: is missing; the image's own program is run, without arguments",
            id="no command",
        ),
        pytest.param(
            an_aitj(PS=a_replica(template=a_template(TRAIN, a_container("web", ports={"web": 80})))),
            "spec.replicaSpecs.PS.template.spec.containers[1].ports: are not published: another container of the pod "
            "is called aitj-*, and this one is not",
            id="ports of a side-car",
        ),
        pytest.param(
            a_nervexjob(coordinator=a_template(RUN)),
            "spec.coordinator.template.spec.containers: none is called coordinator; "
            "it gets no port of that name, and all containers of the template have to end",
            id="not called as its role",
        ),
        pytest.param(
            a_ditask("cartpole", a_task("learner"), a_task("collector", template=a_template(RUN, hostNetwork=True))),
            "spec.tasks[1].template.spec.hostNetwork: no container declares a port, so none is set aside; "
            "two pods on one node may want the same",
            id="a task",
        ),
        pytest.param(
            an_mlkube_job(a_container("mxnet", image="")),
            "spec.replicaSpecs[0].template.spec.containers[0].image: is missing; the API server will refuse the pod",
            id="a replica of an MxJob",
        ),
    ],
)
def test_what_is_surely_not_meant_is_told(job: Json, warning: str) -> None:
    assert said_of(job) == [warning]


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(coordinated(RUN), id="a coordinator alone"),
        pytest.param(coordinated(RUN, a_container("logs")), id="a side-car runs its image's program"),
        pytest.param(coordinated(RUN, restartPolicy="OnFailure"), id="restarts that end"),
        pytest.param(
            coordinated(a_container("di-container", ports={"di-port": 1}, command=["x"]), hostNetwork=True),
            id="on the host with a port",
        ),
        pytest.param(
            a_dijob(
                coordinator=a_template(RUN),
                spec={
                    "collector": {"template": a_template(RUN, restartPolicy="Always")},
                    "learner": {"template": a_template(RUN)},
                },
            ),
            id="all roles",
        ),
        pytest.param(an_aitj(trainer=a_replica(template=a_template(TRAIN))), id="AITrainingJob"),
        pytest.param(a_nervexjob(coordinator=a_template(a_container("coordinator", command=["x"]))), id="NerveXJob"),
        pytest.param(a_ditask(), id="DIJob with tasks"),
        pytest.param(an_mlkube_job(a_container("mxnet"), hostNetwork=True), id="an MxJob has ports of its own"),
    ],
)
def test_a_job_as_it_is_meant_is_not_warned_of(job: Json) -> None:
    assert said_of(job) == []


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(None, id="no spec"),
        pytest.param([], id="a list"),
        pytest.param({"coordinator": {"template": "busybox"}}, id="template is a word"),
        pytest.param({"coordinator": {"template": {"spec": []}}}, id="pod is a list"),
        pytest.param({"tasks": [None, [], "learner", {"template": 7}]}, id="tasks are no objects"),
        pytest.param(
            {"template": {"template": {"template": {"template": {"template": {}}}}}}, id="templates all the way"
        ),
    ],
)
def test_whatever_a_user_writes_is_survived(spec: Any) -> None:
    assert said_of(a_dijob() | {"spec": spec}) == []


@pytest.mark.parametrize("containers", [None, {}, [None], ["busybox"], [[]]])
def test_what_is_no_container_is_left_to_others(containers: Any) -> None:
    job = a_dijob(coordinator={"spec": {"containers": containers}})

    assert [warning.partition(":")[0] for warning in said_of(job)] == [f"{PATH}.containers"]


def test_of_many_the_first_few_are_told_and_none_is_too_long() -> None:
    long = a_template(*(a_container(f"aitj-{i}") for i in range(20)))
    job = an_aitj(roles={"a" * 300: a_replica(template=long)})

    assert len(said_of(job)) == MOST
    assert {len(warning) for warning in said_of(job)} == {LONGEST}


def test_a_kind_without_customs_is_warned_of_what_holds_for_all() -> None:
    job = coordinated(a_container("any", image=""))

    assert warnings_of(job, Custom()) == [f"{PATH}.containers[0].image: is missing; the API server will refuse the pod"]
