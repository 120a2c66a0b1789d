from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.build import a_dijob, a_pod, an_aitj, view_of
from trainmaster.core.ids import Key, Resource
from trainmaster.core.view import (
    CANDIDATE_CODEC,
    CHILD_CODEC,
    JOB_CODEC,
    NODE_CODEC,
    POD_CODEC,
    SERVICE_CODEC,
    WHOLE_CANDIDATE_CODEC,
    WHOLE_CODEC,
    CandidateView,
    ChildView,
    Codec,
    ContainerView,
    JobView,
    NodeConditionView,
    NodeView,
    OwnerView,
    PodView,
    ServiceView,
    owned_by,
    version_of,
    version_of_list,
)

CODECS = (
    pytest.param(POD_CODEC, id="pod"),
    pytest.param(SERVICE_CODEC, id="service"),
    pytest.param(CANDIDATE_CODEC, id="candidate"),
    pytest.param(JOB_CODEC, id="job"),
    pytest.param(NODE_CODEC, id="node"),
)
JOB = an_aitj()


def line(body: Any, type_: str = "ADDED") -> bytes:
    return msgspec.json.encode({"type": type_, "object": body})


def pod_of(body: dict[str, Any]) -> PodView:
    view = POD_CODEC.line(line(body)).view
    assert view is not None
    return view


def minimal(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7"}, **fields}


def a_wire_pod() -> dict[str, Any]:
    """A pod as a real API server sends it: most of it is of no interest to us."""
    field_set: dict[str, Any] = {
        f'k:{{"name":"VARIABLE_{i}"}}': {".": {}, "f:name": {}, "f:value": {}} for i in range(40)
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "mnist-trainer-0",
            "namespace": "ml",
            "uid": "9e6c7a0e-6b0c-4a57-9f4e-1d3f6c0f6a11",
            "resourceVersion": "184467",
            "creationTimestamp": "2026-11-15T11:59:00Z",
            "deletionTimestamp": "2026-11-15T12:00:30Z",
            "deletionGracePeriodSeconds": 30,
            "labels": {"TrainingJobName": "mnist", "TrainingJobReplicaName": "trainer"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}" * 200},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": "other", "controller": False},
                {
                    "apiVersion": "elasticdeeplearning.ai/v1",
                    "kind": "AITrainingJob",
                    "name": "mnist",
                    "uid": "5b5f",
                    "controller": True,
                    "blockOwnerDeletion": True,
                },
            ],
            "managedFields": [
                {
                    "manager": "trainmaster",
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": "2026-11-15T11:59:00Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": {"f:containers": {'k:{"name":"aitj-main"}': {"f:env": field_set}}}},
                }
            ],
        },
        "spec": {
            "nodeName": "gpu-7",
            "restartPolicy": "Never",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}],
            "containers": [
                {
                    "name": "aitj-main",
                    "image": "registry.example/train:1",
                    "env": [{"name": f"VARIABLE_{i}", "value": "x" * 20} for i in range(40)],
                }
            ],
        },
        "status": {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "The node was low on resource: memory.",
            "hostIP": "10.0.0.7",
            "podIPs": [{"ip": "10.1.0.7"}],
            "qosClass": "BestEffort",
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "message": "done"},
                {"type": "Ready", "status": "False", "message": "containers with unready status"},
            ],
            "containerStatuses": [
                {
                    "name": "aitj-main",
                    "ready": False,
                    "restartCount": 0,
                    "imageID": "sha256:0",
                    "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
                    "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "containerID": "c://0"}},
                },
                {
                    "name": "log",
                    "ready": False,
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                },
                {"name": "proxy", "ready": True, "state": {"running": {"startedAt": "2026-11-15T11:59:30Z"}}},
            ],
        },
    }


def test_a_pod_is_slimmed_to_the_facts_that_decisions_need() -> None:
    body = a_wire_pod()

    assert len(msgspec.json.encode(body)) > 6_000
    assert pod_of(body) == PodView(
        key=Key("ml", "mnist-trainer-0"),
        uid="9e6c7a0e-6b0c-4a57-9f4e-1d3f6c0f6a11",
        resource_version=184467,
        owner=OwnerView("elasticdeeplearning.ai/v1", "AITrainingJob", "mnist", "5b5f"),
        deleting=True,
        labels={"TrainingJobName": "mnist", "TrainingJobReplicaName": "trainer"},
        node="gpu-7",
        restart_policy="Never",
        phase="Failed",
        reason="Evicted",
        message="The node was low on resource: memory.",
        unschedulable="",
        containers=(
            ContainerView("aitj-main", exit_code=137, reason="OOMKilled"),
            ContainerView("log", waiting="CrashLoopBackOff", line="back-off"),
            ContainerView("proxy"),
        ),
        leaves=datetime(2026, 11, 15, 12, 0, 30, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("health", "unhealthy", "healthy"),
    [
        pytest.param({}, (), (), id="nothing is said"),
        pytest.param({"nvidia.com/gpu": []}, (), (), id="no device is named"),
        pytest.param({"nvidia.com/gpu": ["Healthy", "Healthy"]}, (), ("nvidia.com/gpu",), id="all are healthy"),
        pytest.param({"nvidia.com/gpu": ["Healthy", "Unknown"]}, (), (), id="one is unknown"),
        pytest.param({"nvidia.com/gpu": ["Unhealthy", "Unhealthy"]}, (("nvidia.com/gpu", 2),), (), id="two are not"),
        pytest.param({"claim:a": ["Unhealthy"], "x.com/npu": ["Healthy"]}, (("claim:a", 1),), ("x.com/npu",), id="two"),
    ],
)
def test_a_pod_says_how_its_devices_are(
    health: dict[str, list[str]], unhealthy: tuple[tuple[str, int], ...], healthy: tuple[str, ...]
) -> None:
    body = a_wire_pod()
    body["status"]["containerStatuses"][0]["allocatedResourcesStatus"] = [
        {"name": name, "resources": [{"resourceID": str(n), "health": word} for n, word in enumerate(words)]}
        for name, words in health.items()
    ]
    view = pod_of(body)

    assert (view.unhealthy, view.healthy) == (unhealthy, healthy)


@pytest.mark.parametrize(
    ("phase", "ready", "unready"),
    [("Running", "False", ("aitj-main", "log")), ("Running", "True", ()), ("Succeeded", "False", ())],
)
def test_a_running_pod_that_is_not_ready_says_which_containers_are_not(
    phase: str, ready: str, unready: tuple[str, ...]
) -> None:
    body = a_wire_pod()
    body["status"] |= {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}

    assert pod_of(body).unready == unready


def test_devices_of_all_containers_of_a_pod_count() -> None:
    body = a_wire_pod()
    for status in body["status"]["containerStatuses"]:
        status["allocatedResourcesStatus"] = [{"name": "nvidia.com/gpu", "resources": [{"health": "Unhealthy"}]}]

    assert pod_of(body).unhealthy == (("nvidia.com/gpu", 3),)


def _a_candidate(**metadata: Any) -> bytes:
    given = {"name": "mnist-worker-0", "namespace": "ml", "uid": "u", "resourceVersion": "7", **metadata}
    return msgspec.json.encode({"metadata": given, "spec": {"nodeName": "gpu-7"}})


def test_a_candidate_for_adoption_is_its_metadata() -> None:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "MXJob", "name": "mnist", "uid": "5b5f", "controller": True}
    view = CANDIDATE_CODEC.object(_a_candidate(labels={"a": "b"}, ownerReferences=[owner]))

    assert view == CandidateView(
        key=Key("ml", "mnist-worker-0"),
        uid="u",
        resource_version=7,
        owner=OwnerView("kubeflow.org/v1", "MXJob", "mnist", "5b5f"),
        deleting=False,
        labels={"a": "b"},
        has_owners=True,
    )


def test_a_candidate_whose_owner_is_no_controller_has_owners_all_the_same() -> None:
    view = CANDIDATE_CODEC.object(_a_candidate(ownerReferences=[{"kind": "MXJob", "name": "mnist", "uid": "5b5f"}]))

    assert (view.owner, view.has_owners) == (None, True)
    assert not CANDIDATE_CODEC.object(_a_candidate()).has_owners


def test_a_candidate_that_is_read_has_its_body() -> None:
    assert WHOLE_CANDIDATE_CODEC.object(_a_candidate()).raw == _a_candidate()


def test_a_slim_pod_is_a_fraction_of_the_pod_on_the_wire() -> None:
    body = a_wire_pod()

    assert len(msgspec.json.encode(pod_of(body))) < len(msgspec.json.encode(body)) / 6


def test_a_pod_that_was_just_created_has_a_view() -> None:
    view = pod_of(minimal())

    assert (view.phase, view.node, view.containers, view.labels) == ("", "", (), {})
    assert view.restart_policy == "Always"  # what the API server makes of an empty field
    assert not view.deleting
    assert view.owner is None


@pytest.mark.parametrize(
    ("containers", "ports"),
    [
        pytest.param(
            [
                {"name": "a", "ports": [{"containerPort": 80, "hostPort": 80}, {"containerPort": 81}]},
                {"name": "b"},
                {"name": "c", "ports": [{"hostPort": 443, "containerPort": 443}]},
            ],
            (80, 443),
            id="some",
        ),
        pytest.param([{"name": "a", "ports": [{"containerPort": 80}]}], (), id="none"),
        pytest.param([{"name": "a", "ports": None, "env": [{"name": "A", "value": "hostPort"}]}], (), id="null"),
        pytest.param([{"name": "a", "command": ['"hostPort"'], "x": {"hostPort": 1}}], (), id="the word elsewhere"),
        pytest.param(None, (), id="no containers"),
    ],
)
def test_the_host_ports_of_a_pod_are_those_of_its_containers(containers: Any, ports: tuple[int, ...]) -> None:
    assert pod_of(minimal(spec={"containers": containers})).host_ports == ports


def test_an_object_that_was_never_stored_has_version_zero() -> None:
    assert pod_of({"metadata": {"name": "p"}}).resource_version == 0


def test_the_nulls_that_go_programs_write_are_read_as_absent() -> None:
    metadata = minimal()["metadata"] | {
        "labels": None,
        "ownerReferences": None,
        "deletionTimestamp": None,
        "creationTimestamp": None,
    }
    status = {"phase": "Running", "conditions": None, "containerStatuses": None}

    view = pod_of({"metadata": metadata, "status": status})

    assert (view.labels, view.owner, view.deleting, view.containers) == ({}, None, False, ())


def test_only_the_controller_among_the_owners_is_the_owner() -> None:
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1"}
    metadata = minimal()["metadata"] | {"ownerReferences": [reference, reference | {"controller": False}]}

    assert pod_of({"metadata": metadata}).owner is None


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        pytest.param([{"type": "PodScheduled", "status": "False", "message": "no room"}], "no room", id="unscheduled"),
        pytest.param([{"type": "PodScheduled", "status": "True", "message": "fine"}], "", id="scheduled"),
        pytest.param([{"type": "Ready", "status": "False", "message": "not yet"}], "", id="another condition"),
        pytest.param([], "", id="no condition"),
    ],
)
def test_why_a_pod_cannot_be_scheduled_is_taken_from_its_condition(conditions: list[dict[str, str]], said: str) -> None:
    assert pod_of(minimal(status={"conditions": conditions})).unschedulable == said


@pytest.mark.parametrize(
    ("state", "view"),
    [
        pytest.param({"running": {}}, ContainerView("c"), id="running"),
        pytest.param({"waiting": {"reason": "ErrImagePull"}}, ContainerView("c", waiting="ErrImagePull"), id="waiting"),
        pytest.param({"terminated": {"exitCode": 0}}, ContainerView("c", exit_code=0), id="exit code 0 is an end"),
        pytest.param({"hibernating": {"since": 1}}, ContainerView("c"), id="a state of the future"),
        pytest.param({}, ContainerView("c"), id="no state"),
        pytest.param(None, ContainerView("c"), id="null"),
    ],
)
def test_a_container_is_running_waiting_or_ended(state: Any, view: ContainerView) -> None:
    status = {"containerStatuses": [{"name": "c", "state": state}]}

    assert pod_of(minimal(status=status)).containers == (view,)


@pytest.mark.parametrize("phase", ["Hibernating", "", "ünbekannt"])
def test_an_unknown_phase_is_kept(phase: str) -> None:
    view = pod_of(minimal(status={"phase": phase}))

    assert view.phase == phase
    assert not view.is_ended


@pytest.mark.parametrize(
    ("phase", "ended"),
    [("Pending", False), ("Running", False), ("Unknown", False), ("Succeeded", True), ("Failed", True)],
)
def test_a_pod_has_ended_when_it_succeeded_or_failed(phase: str, ended: bool) -> None:
    assert a_pod(JOB, "trainer", phase=phase).is_ended is ended


DIED = ContainerView("c", exit_code=1, reason="Error")


@pytest.mark.parametrize(
    ("state", "view"),
    [
        pytest.param({"running": {}}, ContainerView("c", last=DIED), id="runs"),
        pytest.param(
            {"waiting": {"reason": "ContainerCreating"}},
            ContainerView("c", waiting="ContainerCreating", last=DIED),
            id="waits",
        ),
        pytest.param({"terminated": {"exitCode": 0}}, ContainerView("c", exit_code=0), id="ended again"),
    ],
)
def test_a_restarted_container_has_its_last_exit(state: Any, view: ContainerView) -> None:
    last = {"terminated": {"exitCode": 1, "reason": "Error"}}
    status = {"containerStatuses": [{"name": "c", "state": state, "lastState": last}]}

    assert pod_of(minimal(status=status)).containers == (view,)


def test_a_container_is_found_by_its_name() -> None:
    pod = a_pod(JOB, "trainer", containers={"a": None, "b": 3})

    assert pod.container("b") == ContainerView("b", exit_code=3, reason="Error")
    assert pod.container("c") is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("before\u0085after", id="U+0085 next line"),
        pytest.param("before\u2028after", id="U+2028 line separator"),
        pytest.param("before\nafter", id="an escaped line feed"),
        pytest.param("😀\x00", id="outside the basic plane, and a zero"),
    ],
)
def test_line_breaks_of_unicode_inside_strings_stay_inside(text: str) -> None:
    raw = line(minimal(status={"message": text}))

    assert b"\n" not in raw
    assert POD_CODEC.line(raw).view == pod_of(minimal(status={"message": text}))
    assert pod_of(minimal(status={"message": text})).message == text


# --- the output of failed containers ---


def container_of(**terminated: Any) -> ContainerView:
    status = {"containerStatuses": [{"name": "main", "state": {"terminated": terminated}}]}
    spec = {"containers": [{"name": "proxy"}, {"name": "main", "resources": {"limits": {"memory": "200Mi"}}}]}
    return pod_of(minimal(spec=spec, status=status)).containers[0]


@pytest.mark.parametrize(
    ("message", "lines"),
    [
        pytest.param("", (), id="none"),
        pytest.param("a\n\n  b\n", ("a", "  b"), id="lines"),
        pytest.param("10%\r50%\r\nend", ("50%", "end"), id="a progress bar"),
        pytest.param("\x1b[31mred\x1b[0m\ta\x00\u2028b", ("red  ab",), id="control sequences"),
        pytest.param("\n".join(map(str, range(20))), tuple(map(str, range(10, 20))), id="ten lines"),
        pytest.param("x" * 3000, ("x" * 200,), id="one long line"),
        pytest.param("a\n" * 500 + "é" * 600 + "\nend", ("end",), id="a part of a line"),
    ],
)
def test_a_failed_container_has_its_last_lines(message: str, lines: tuple[str, ...]) -> None:
    found = container_of(exitCode=1, message=message)

    assert found.lines == lines
    assert len(found.output.encode()) <= 1024


def test_only_a_failed_container_has_output_and_time() -> None:
    ended = {"message": "a\nb", "finishedAt": "2026-11-15T12:00:00Z"}
    good, bad = container_of(exitCode=0, **ended), container_of(exitCode=1, **ended)

    assert (good.output, good.finished, good.line) == ("", None, "b")
    assert (bad.output, bad.finished) == ("a\nb", datetime(2026, 11, 15, 12, tzinfo=UTC))


def test_a_container_that_ran_out_of_memory_has_its_limit() -> None:
    assert container_of(exitCode=137, reason="OOMKilled").memory == "200Mi"
    assert container_of(exitCode=137, reason="Error").memory == ""


# --- watch lines -------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("type_", ["ADDED", "MODIFIED", "DELETED"])
def test_a_line_about_an_object_carries_its_view_and_version(codec: Codec[Any], type_: str) -> None:
    event = codec.line(line(minimal(), type_))

    assert (event.type, event.resource_version, event.code) == (type_, "7", 0)
    assert event.view is not None
    assert (event.view.key, event.view.uid, event.view.resource_version) == (Key("n", "p"), "u", 7)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"kind": "Pod", "metadata": {"resourceVersion": "12746"}}, id="metadata alone"),
        pytest.param(
            {
                "kind": "Pod",
                "metadata": {"resourceVersion": "12746", "creationTimestamp": None},
                "spec": {"containers": None},
                "status": {},
            },
            id="a pod as the API server writes it",
        ),
    ],
)
def test_a_bookmark_carries_a_version_and_no_view(codec: Codec[Any], body: dict[str, Any]) -> None:
    event = codec.line(line(body, "BOOKMARK"))

    assert (event.type, event.view, event.resource_version) == ("BOOKMARK", None, "12746")


class _Named(msgspec.Struct):
    name: str


class _NamedWire(msgspec.Struct):
    metadata: _Named


def test_a_bookmark_is_one_also_where_every_object_must_have_a_name() -> None:
    codec: Codec[Any] = Codec(_NamedWire, lambda wire: pytest.fail(f"{wire} is no object"))
    event = codec.line(line({"metadata": {"resourceVersion": "12746"}}, "BOOKMARK"))

    assert (event.type, event.view, event.resource_version) == ("BOOKMARK", None, "12746")


@pytest.mark.parametrize("codec", CODECS)
def test_an_error_carries_its_code_and_no_view(codec: Codec[Any]) -> None:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "too old resource version: 1 (9)",
        "reason": "Expired",
        "code": 410,
    }

    event = codec.line(line(body, "ERROR"))

    assert (event.type, event.view) == ("ERROR", None)
    assert (event.code, event.message) == (410, "too old resource version: 1 (9)")


@pytest.mark.parametrize("codec", CODECS)
def test_of_an_object_that_cannot_be_read_name_and_version_are_known(codec: Codec[Any]) -> None:
    metadata = minimal()["metadata"] | {"ownerReferences": {"not": "a list"}}
    event = codec.line(line({"metadata": metadata}, "MODIFIED"))

    assert (event.type, event.view, event.resource_version) == ("MODIFIED", None, "7")
    assert event.unreadable is not None
    assert (event.unreadable.key, event.unreadable.error.partition(",")[0]) == (
        Key("n", "p"),
        "Expected `array | null`",
    )


@pytest.mark.parametrize("codec", CODECS)
def test_a_line_that_was_cut_is_no_unreadable_object(codec: Codec[Any]) -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        codec.line(line(minimal())[:-9])

    assert not isinstance(caught.value, msgspec.ValidationError)


def test_an_object_without_metadata_has_no_version() -> None:
    assert version_of(b'{"type":"ADDED","object":{}}') == ""


# --- list pages --------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_page_has_views_version_and_continue_token(codec: Codec[Any]) -> None:
    second = {"metadata": {"name": "q", "namespace": "n", "uid": "v", "resourceVersion": "8"}}
    page = codec.page(
        msgspec.json.encode({"metadata": {"resourceVersion": "99", "continue": "next"}, "items": [minimal(), second]})
    )

    assert (page.resource_version, page.cursor) == ("99", "next")
    assert [(view.key.name, view.resource_version) for view in page.views] == [("p", 7), ("q", 8)]


def test_the_last_page_has_no_cursor_and_an_empty_one_no_views() -> None:
    page = POD_CODEC.page(b'{"kind":"PodList","metadata":{"resourceVersion":"99"},"items":[]}')

    assert (page.views, page.cursor) == ([], "")


# --- containers and devices --------------------------------------------------------------------


def test_a_container_that_cannot_start_has_reason_and_image() -> None:
    waiting = {"reason": "ErrImagePull", "message": "rpc error\nno such host"}
    statuses = [
        {"name": "a", "image": "x:1", "state": {"waiting": waiting}},
        {"name": "b", "image": "y:1", "state": {"waiting": {"reason": "ContainerCreating"}}},
        {"name": "c", "image": "z:1", "state": {"running": {}}},
    ]

    view = pod_of(minimal(status={"containerStatuses": statuses}))

    assert view.containers == (
        ContainerView("a", waiting="ErrImagePull", line="no such host", image="x:1"),
        ContainerView("b", waiting="ContainerCreating"),
        ContainerView("c"),
    )


def test_of_init_containers_those_are_kept_that_wait_or_failed() -> None:
    statuses = [
        {"name": "done", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
        {"name": "failed", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}},
        {"name": "side-car", "state": {"running": {}}},
        {"name": "next", "state": {"waiting": {"reason": "PodInitializing"}}},
    ]

    view = pod_of(minimal(status={"initContainerStatuses": statuses, "startTime": "2026-11-15T12:00:00Z"}))

    assert [c.name for c in view.init_containers] == ["failed", "next"]
    assert view.started == datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("containers", "devices"),
    [
        pytest.param([{"name": "a", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}], (), id="none"),
        pytest.param(
            [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "8"}}}], (("nvidia.com/gpu", 8),), id="8"
        ),
        pytest.param(
            [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 8}}}], (("nvidia.com/gpu", 8),), id="int"
        ),
        pytest.param(
            [{"resources": {"limits": {"x.com/a": "1"}}}, {"resources": {"limits": {"cpu": "1", "x.com/a": "2"}}}],
            (("x.com/a", 3),),
            id="of two containers",
        ),
        pytest.param([{"resources": {"limits": {"x.com/a": "0"}}}], (), id="zero"),
        pytest.param([{"resources": {"limits": {"x.com/a": "many"}}}], (), id="no number"),
        pytest.param([{"resources": {"requests": {"cpu": "1"}}, "image": "a/b"}], (), id="no limits at all"),
    ],
)
def test_devices_are_the_extended_resources_of_the_limits(containers: Any, devices: Any) -> None:
    assert pod_of(minimal(spec={"containers": containers})).devices == devices


# --- nodes -------------------------------------------------------------------------------------


def test_a_node_view_has_only_its_health() -> None:
    since = "2026-11-15T12:00:00Z"
    when = datetime(2026, 11, 15, 12, tzinfo=UTC)
    body = {
        "metadata": {"name": "gpu-7", "uid": "u", "resourceVersion": "9", "labels": {"a": "b"}},
        "spec": {
            "podCIDR": "10.0.0.0/24",
            "taints": [
                {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": since},
                {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
                {"key": "example.com/mine", "effect": "NoSchedule"},
            ],
        },
        "status": {
            "allocatable": {"cpu": "8", "memory": "30Gi", "nvidia.com/gpu": "7", "ephemeral-storage": "1k"},
            "capacity": {"nvidia.com/gpu": "8"},
            "conditions": [
                {"type": "MemoryPressure", "status": "False", "message": "enough", "lastTransitionTime": since},
                {"type": "GPUUnhealthy", "status": "True", "message": "Xid 79", "lastTransitionTime": since},
                {"type": "Ready", "status": "Unknown", "message": "stopped posting", "lastTransitionTime": since},
            ],
            "images": [{"names": [f"registry.example/{i}"], "sizeBytes": 1} for i in range(50)],
        },
    }

    assert NODE_CODEC.line(line(body)).view == NodeView(
        key=Key("", "gpu-7"),
        uid="u",
        resource_version=9,
        ready="Unknown",
        ready_since=when,
        message="stopped posting",
        taints=(("node.kubernetes.io/unreachable", when), ("node.kubernetes.io/unreachable", None)),
        conditions=(NodeConditionView("GPUUnhealthy", when, "Xid 79"),),
        devices={"nvidia.com/gpu": 7},
        capacity={"nvidia.com/gpu": 8},
    )


def test_a_node_that_was_just_registered_has_a_view() -> None:
    view = NODE_CODEC.line(line(minimal())).view

    assert view is not None
    assert (view.ready, view.taints, view.conditions, view.is_gone) == ("", (), (), False)
    assert (view.devices, view.capacity) == ({}, {})


# --- services and jobs -------------------------------------------------------------------------


def test_a_service_view_has_name_owner_and_deletion() -> None:
    reference = {"apiVersion": "g/v1", "kind": "K", "name": "j", "uid": "1", "controller": True}
    metadata = minimal()["metadata"] | {
        "ownerReferences": [reference],
        "deletionTimestamp": "2026-11-15T12:00:30.123456Z",
    }

    view = SERVICE_CODEC.line(line({"metadata": metadata, "spec": {"clusterIP": "None"}})).view

    assert view == ServiceView(Key("n", "p"), "u", 7, OwnerView("g/v1", "K", "j", "1"), deleting=True)


def test_a_job_with_any_spec_is_kept_undecoded() -> None:
    body = minimal(spec={"coordinator": "nonsense", "replicas": "many"}, status=3)

    view = JOB_CODEC.line(line(body)).view

    assert view == JobView(Key("n", "p"), "u", 7, deleting=False, raw=msgspec.json.encode(body))


def test_a_job_view_does_not_keep_its_page_in_memory() -> None:
    (view,) = JOB_CODEC.page(msgspec.json.encode({"metadata": {"resourceVersion": "9"}, "items": [minimal()]})).views

    assert type(view.raw) is bytes


@pytest.mark.parametrize(
    ("status", "ports"),
    [
        pytest.param(
            {"ports": {"ps-0": {"7000": 20001, "7001": 20002}, "ps-1": {"7000": 3}}}, (20001, 20002, 3), id="some"
        ),
        pytest.param({"phase": "Running"}, (), id="none"),
        pytest.param({"ports": {}}, (), id="an empty map"),
        pytest.param({"ports": None}, (), id="null"),
        pytest.param({"ports": [20001]}, (), id="a foreign shape"),
        pytest.param({"ports": {"ps-0": {"7000": "many"}}}, (), id="no number"),
        pytest.param({"conditions": [{"message": 'it has "ports"'}]}, (), id="the word elsewhere"),
        pytest.param([{"ports": 1}], (), id="a status that is none"),
    ],
)
def test_the_ports_of_a_job_are_those_of_its_status(status: Any, ports: tuple[int, ...]) -> None:
    view = JOB_CODEC.line(line(minimal(spec={"ports": {"a": {"b": 1}}}, status=status))).view

    assert view is not None
    assert view.ports == ports


def test_a_job_that_is_being_deleted_is_marked() -> None:
    job = a_dijob()
    job["metadata"]["deletionTimestamp"] = "2026-11-15T12:00:00Z"

    assert view_of(job).deleting
    assert not view_of(a_dijob()).deleting


# --- what a view may cost ----------------------------------------------------------------------

OURS = Resource("diengine.opendilab.org", "v1alpha1", "dijobs", "DIJob")
OWNED_CODECS = (
    pytest.param(POD_CODEC, id="pod"),
    pytest.param(SERVICE_CODEC, id="service"),
    pytest.param(CHILD_CODEC, id="child"),
    pytest.param(CANDIDATE_CODEC, id="candidate"),
)


def owned(api_version: str = "diengine.opendilab.org/v1alpha1", kind: str = "DIJob", **reference: Any) -> Any:
    owner = {"apiVersion": api_version, "kind": kind, "name": "j", "uid": "u-j", "controller": True, **reference}
    body = minimal()
    body["metadata"]["ownerReferences"] = [owner]
    return body


@pytest.mark.parametrize("codec", OWNED_CODECS)
@pytest.mark.parametrize(
    ("body", "is_kept"),
    [
        pytest.param(owned(), True, id="a job of ours"),
        pytest.param(owned("diengine.opendilab.org/v2alpha1"), True, id="in another version"),
        pytest.param(minimal(), False, id="no owner"),
        pytest.param(owned(controller=False), False, id="an owner that is no controller"),
        pytest.param(owned("apps/v1", "ReplicaSet"), False, id="another controller"),
        pytest.param(owned("example.org/v1"), False, id="another group"),
        pytest.param(owned(kind="Job"), False, id="another kind"),
    ],
)
def test_only_children_of_our_jobs_are_kept(codec: Codec[Any], body: Any, *, is_kept: bool) -> None:
    ours = codec.only(owned_by([OURS]))
    page = ours.page(msgspec.json.encode({"metadata": {"resourceVersion": "9"}, "items": [body, owned()]}))
    change = ours.line(line(body, "MODIFIED"))

    assert len(page.views) == 1 + is_kept
    assert page.unreadable == []
    # One that loses its owner leaves the store.
    assert (change.type, change.resource_version) == ("MODIFIED" if is_kept else "DELETED", "7")


def child_of(body: Any) -> ChildView:
    view = CHILD_CODEC.line(line(body)).view
    assert view is not None
    return view


def test_of_a_config_map_digests_are_kept_and_not_the_data() -> None:
    data = {"members.json": "<" * 1_000_000, "other": "é"}

    view = child_of(owned() | {"data": data})

    assert len(msgspec.json.encode(view)) < 1000
    assert view.has_data(data)
    assert view.has_data({"other": "é"})
    assert not view.has_data({"other": "e"})
    assert not view.has_data({**data, "third": ""})


def test_the_digests_of_data_do_not_depend_on_how_it_is_escaped() -> None:
    escaped = msgspec.json.encode(owned()).replace(b'"metadata"', b'"data":{"a":"\\u003c\\u00e9"},"metadata"')

    assert CHILD_CODEC.object(escaped).has_data({"a": "<é"})


def test_of_another_child_labels_status_and_spec_are_kept_and_not_its_template() -> None:
    body = owned() | {"spec": {"suspend": True, "template": {"x": "y" * 1_000_000}}, "status": {"succeeded": 1}}
    body["metadata"] |= {"labels": {"a": "b"}, "annotations": {"x": "y" * 200_000}, "managedFields": [{"x": "y" * 99}]}

    assert msgspec.json.decode(child_of(body).raw) == {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"suspend": True},
        "status": {"succeeded": 1},
    }


def with_labels(number: int) -> Any:
    body = minimal()
    body["metadata"]["labels"] = {f"label-{n}": "x" * 60 for n in range(number)}
    return body


@pytest.mark.parametrize(
    ("codec", "body"),
    [
        pytest.param(POD_CODEC, with_labels(3000), id="labels of a pod"),
        pytest.param(CHILD_CODEC, with_labels(3000), id="labels of a child"),
        pytest.param(CANDIDATE_CODEC, with_labels(3000), id="labels of a candidate"),
        pytest.param(WHOLE_CANDIDATE_CODEC, minimal(spec={"x": "y" * 80_000}), id="a whole candidate"),
        pytest.param(
            POD_CODEC,
            minimal(spec={"containers": [{"ports": [{"hostPort": 20000 + n} for n in range(20_000)]}]}),
            id="host ports",
        ),
        pytest.param(POD_CODEC, minimal(status={"message": "x" * 80_000}), id="message"),
        pytest.param(CHILD_CODEC, minimal(status={"message": "x" * 80_000}), id="status of a child"),
        pytest.param(CHILD_CODEC, owned() | {"data": {f"k{n}": "" for n in range(3000)}}, id="keys of a ConfigMap"),
        pytest.param(NODE_CODEC, minimal(status={"allocatable": {f"x/{n}": "1" for n in range(9000)}}), id="devices"),
    ],
)
def test_an_object_of_which_too_much_would_be_kept_is_left_out(codec: Codec[Any], body: Any) -> None:
    page = codec.page(msgspec.json.encode({"metadata": {"resourceVersion": "9"}, "items": [minimal(), body]}))
    change = codec.line(line(body))

    assert len(page.views) == 1
    assert [each.key for each in page.unreadable] == [Key("n", "p")]
    assert change.view is None
    assert change.unreadable is not None
    assert "at most 65536 are kept" in change.unreadable.error


# --- large jobs ---


def job_of(body: Any) -> JobView:
    view = JOB_CODEC.line(line(body)).view
    assert view is not None
    return view


def test_managed_fields_of_a_job_are_not_kept() -> None:
    body = minimal(spec={"a": {"managedFields": 1}}, status={"b": 2}, other=3)
    body["metadata"]["managedFields"] = [{"fieldsV1": {"f:spec": {}}}]
    view = job_of(body)
    del body["metadata"]["managedFields"]

    assert msgspec.json.decode(view.raw) == body


def test_of_a_job_that_is_too_large_a_part_is_kept_and_it_says_why() -> None:
    spec = {"managedBy": "x.y/z", "coordinator": {"x": "y" * 1_300_000}}
    body = minimal(spec=spec, status={"phase": "Running", "ports": {"a": {"b": 20001}}})
    body["metadata"] |= {"generation": 3, "annotations": {"a": "b" * 100_000}}

    view = job_of(body)

    assert (view.key, view.uid, view.resource_version, view.ports) == (Key("n", "p"), "u", 7, (20001,))
    assert view.error.startswith("object: it has 1368 KiB without its status, and a job may have 256 KiB; ")
    assert msgspec.json.decode(view.raw) == {
        "metadata": {**minimal()["metadata"], "generation": 3},
        "spec": {"managedBy": "x.y/z", "coordinator": {"x": None}},
        "status": body["status"],
    }


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param("x" * 1_000_000, id="no object"),
        pytest.param({f"field-{n}": n for n in range(50_000)}, id="many fields"),
        pytest.param({"x" * 1_000_000: 1}, id="a long name"),
        pytest.param({"a": {"b": [{}] * 400_000}}, id="many values"),
    ],
)
def test_whatever_makes_a_job_large_little_of_it_is_kept(spec: Any) -> None:
    assert len(job_of(minimal(spec=spec)).raw) < 80_000


def test_a_large_status_does_not_make_a_job_too_large() -> None:
    """The declared replicas of di-server are in it, and no tenant writes it."""
    body = minimal(status={"declared": {"x": "y" * 600_000}})

    assert job_of(body).error == ""
    assert msgspec.json.decode(job_of(body).raw) == body


def test_programs_of_one_user_read_objects_of_any_size() -> None:
    view = WHOLE_CODEC.object(msgspec.json.encode(minimal(spec={"x": "y" * 1_000_000})))

    assert (view.error, len(view.raw) > 1_000_000) == ("", True)


def test_a_list_without_a_version_is_no_list() -> None:
    for version in ("", "x", "1e3", "-1", "9" * 30):
        body = msgspec.json.encode({"metadata": {"resourceVersion": version}, "items": []})
        with pytest.raises(msgspec.DecodeError):
            POD_CODEC.page(body)


@pytest.mark.parametrize(
    "items", ["null", "[]", '[{"metadata":{"name":"a"}}]', '[{"spec":' + '{"a":' * 2000 + "1" + "}" * 2001 + "]"]
)
def test_the_version_of_a_list_is_read_whatever_its_items_are(items: str) -> None:
    """A real API server answers ``null`` for an empty list of metadata."""
    body = f'{{"kind":"PartialObjectMetadataList","metadata":{{"resourceVersion":"245"}},"items":{items}}}'

    assert version_of_list(body.encode()) == 245
