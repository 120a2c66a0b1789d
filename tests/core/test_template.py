import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.build import a_container, a_template
from trainmaster.core.ids import Resource
from trainmaster.core.template import (
    ContainerPart,
    EnvPart,
    MetaPart,
    Owner,
    PodSpecPart,
    PortPart,
    TemplatePart,
    VolumePart,
    env_of,
    errors,
    headless_service_body,
    pod_body,
    read,
    with_env,
    with_output_kept,
    with_ports,
)

OWNER = Owner(Resource("example.org", "v1", "jobs", "Job"), "ml", "mnist", "uid-1")
REFERENCE = {"apiVersion": "example.org/v1", "kind": "Job", "name": "mnist", "uid": "uid-1", "controller": True}
MANAGED_BY = {"app.kubernetes.io/managed-by": "trainmaster"}


# --- what is read of a template ----------------------------------------------------------------


def test_the_fields_that_we_touch_are_read_and_the_rest_is_ignored() -> None:
    template = a_template(
        a_container("main", ports={"web": 80}, env=[{"name": "A", "valueFrom": {"fieldRef": {}}}], tty=True),
        labels={"a": "b"},
        hostPID=True,
        initContainers=[a_container("prepare")],
        volumes=[{"name": "data", "emptyDir": {}}],
    )

    part = read(template)

    main = ContainerPart("main", ports=[PortPart(80, "web")], env=[EnvPart("A")])
    assert part == TemplatePart(
        PodSpecPart([main], init_containers=[ContainerPart("prepare")], volumes=[VolumePart("data")]),
        MetaPart(labels={"a": "b"}),
    )


@pytest.mark.parametrize(
    ("template", "error"),
    [
        pytest.param({}, "at: Object missing required field `spec`", id="no spec"),
        pytest.param({"spec": {}}, "at.spec: Object missing required field `containers`", id="no containers"),
        pytest.param(a_template(), "at.spec.containers: Expected `array` of length >= 1", id="an empty list"),
        pytest.param(
            a_template({"image": "x"}), "at.spec.containers[0]: Object missing required field `name`", id="no name"
        ),
        pytest.param(
            a_template(a_container("a"), a_container("b", ports={"p": 65536})),
            "at.spec.containers[1].ports[0].containerPort: Expected `int` <= 65535",
            id="a port too high",
        ),
        pytest.param(
            a_template(a_container("a", ports={"p": 0})),
            "at.spec.containers[0].ports[0].containerPort: Expected `int` >= 1",
            id="port zero",
        ),
        pytest.param(
            a_template(a_container("a", env=[{"value": "x"}])),
            "at.spec.containers[0].env[0]: Object missing required field `name`",
            id="a variable without a name",
        ),
        pytest.param(
            a_template(a_container("a"), volumes=[{}]),
            "at.spec.volumes[0]: Object missing required field `name`",
            id="a volume without a name",
        ),
        pytest.param(
            a_template(a_container("a"), initContainers=[{}]),
            "at.spec.initContainers[0]: Object missing required field `name`",
            id="an init container without a name",
        ),
        pytest.param(
            a_template(a_container("a"), hostNetwork="yes"),
            "at.spec.hostNetwork: Expected `bool | null`, got `str`",
            id="a word for a bool",
        ),
    ],
)
def test_a_template_with_a_wrong_shape_is_refused_with_the_path(template: dict[str, Any], error: str) -> None:
    assert errors(template, "at") == [error]


def test_fields_that_only_the_api_server_validates_are_no_error() -> None:
    assert errors(a_template(a_container("main", resources={"limits": {"cpu": "-7 apples"}}), bogus=1), "at") == []


# --- ports -------------------------------------------------------------------------------------


def moved(container: dict[str, Any], *, on_host: bool = True) -> dict[str, Any]:
    return with_ports(container, {"80": 20001}, lambda name: name == "web", on_host=on_host)


@pytest.mark.parametrize(
    ("port", "on_host", "expected"),
    [
        pytest.param(
            {"name": "web", "containerPort": 80}, True, {"containerPort": 20001, "hostPort": 20001}, id="host"
        ),
        pytest.param({"name": "web", "containerPort": 80}, False, {"containerPort": 20001}, id="own network"),
        pytest.param(
            {"name": "web", "containerPort": 80, "hostPort": 80, "protocol": "UDP"},
            True,
            {"containerPort": 20001, "hostPort": 20001, "protocol": "UDP"},
            id="the rest stays",
        ),
        pytest.param(
            {"name": "web", "containerPort": 81}, True, {"containerPort": 81, "hostPort": 81}, id="given no other"
        ),
    ],
)
def test_a_port_of_our_name_is_moved(port: dict[str, Any], on_host: bool, expected: dict[str, Any]) -> None:
    (found,) = moved({"name": "c", "ports": [port]}, on_host=on_host)["ports"]

    assert found == {"name": "web", **expected}


@pytest.mark.parametrize(
    "container",
    [
        pytest.param({"name": "c"}, id="no ports"),
        pytest.param({"name": "c", "ports": None}, id="null"),
        pytest.param({"name": "c", "ports": [{"containerPort": 80}]}, id="no name"),
        pytest.param({"name": "c", "ports": [{"name": None, "containerPort": 80}]}, id="a null for a name"),
        pytest.param({"name": "c", "ports": [{"name": "other", "containerPort": 80}]}, id="another name"),
        pytest.param({"name": "c", "livenessProbe": "nonsense"}, id="what only the API server can judge"),
        pytest.param({"name": "c", "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 3}}, id="no port"),
        pytest.param({"name": "c", "readinessProbe": {"httpGet": {"port": "web"}}}, id="a probe by name"),
        pytest.param({"name": "c", "readinessProbe": {"tcpSocket": {"port": 443}}}, id="a probe of another port"),
        pytest.param({"name": "c", "env": [{"name": "PORT", "value": "80"}]}, id="the user's own variable"),
    ],
)
def test_other_ports_of_a_container_do_not_change(container: dict[str, Any]) -> None:
    original = copy.deepcopy(container)

    assert moved(container) == original
    assert container == original


@pytest.mark.parametrize("probe", ["livenessProbe", "readinessProbe", "startupProbe"])
@pytest.mark.parametrize("way", ["httpGet", "tcpSocket", "grpc"])
def test_probes_by_number_follow_the_port(probe: str, way: str) -> None:
    given = {"name": "c", probe: {way: {"port": 80, "path": "/"}, "periodSeconds": 80}}

    assert moved(given) == {"name": "c", probe: {way: {"port": 20001, "path": "/"}, "periodSeconds": 80}}
    assert given[probe] == {way: {"port": 80, "path": "/"}, "periodSeconds": 80}


# --- environment -------------------------------------------------------------------------------


def variables_of(container: dict[str, Any]) -> list[Any]:
    env: list[Any] = container["env"]
    return env


def test_our_variables_come_before_the_users_in_our_order() -> None:
    container = a_container("main", env=[{"name": "Z", "value": "1"}, {"name": "A", "value": "2"}])

    assert variables_of(with_env(container, env_of({"RANK": "0", "HOST": "h"}))) == [
        {"name": "RANK", "value": "0"},
        {"name": "HOST", "value": "h"},
        {"name": "Z", "value": "1"},
        {"name": "A", "value": "2"},
    ]


def test_all_user_variables_with_our_names_are_replaced() -> None:
    from_field = {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    container = a_container("main", env=[{"name": "RANK", "value": "7"}, {"name": "A", "value": "$(RANK)"}, from_field])

    assert variables_of(with_env(container, env_of({"RANK": "0"}))) == [
        {"name": "RANK", "value": "0"},
        {"name": "A", "value": "$(RANK)"},
    ]


@pytest.mark.parametrize("given_env", [{}, {"env": None}, {"env": []}], ids=["absent", "null", "empty"])
def test_a_container_without_variables_gets_ours_alone(given_env: dict[str, Any]) -> None:
    assert with_env({"name": "main", **given_env}, env_of({"RANK": "0"})) == {
        "name": "main",
        "env": [{"name": "RANK", "value": "0"}],
    }


_variables = st.fixed_dictionaries(
    {"name": st.sampled_from(["A", "B", "RANK", "HOST"])},
    optional={"value": st.text(max_size=3), "valueFrom": st.dictionaries(st.text(max_size=3), st.integers())},
)
_unknown = st.dictionaries(st.text(min_size=1, max_size=5), st.none() | st.integers() | st.text(max_size=3), max_size=4)


@settings(max_examples=50, deadline=None, database=None)
@given(env=st.lists(_variables, max_size=5), unknown=_unknown)
def test_setting_variables_changes_nothing_else_and_not_the_original(env: list[Any], unknown: dict[str, Any]) -> None:
    container = {**unknown, "name": "main", "env": env}
    before = copy.deepcopy(container)

    after = with_env(container, env_of({"RANK": "0", "HOST": "h"}))

    assert container == before
    assert {key: value for key, value in after.items() if key != "env"} == {**unknown, "name": "main"}
    ours = [{"name": "RANK", "value": "0"}, {"name": "HOST", "value": "h"}]
    assert after["env"] == ours + [entry for entry in env if entry["name"] not in ("RANK", "HOST")]


# --- bodies ------------------------------------------------------------------------------------


def test_an_owner_reference_names_the_controller_and_blocks_only_when_asked() -> None:
    assert OWNER.reference(blocks=False) == REFERENCE
    assert OWNER.reference(blocks=True) == REFERENCE | {"blockOwnerDeletion": True}


def a_pod_body(template: dict[str, Any], **labels: str) -> dict[str, Any]:
    return pod_body(
        template, name="mnist-0", namespace="ml", labels=labels, owner=REFERENCE, spec={"containers": [], "x": 1}
    )


def test_a_pod_is_its_name_our_labels_the_owner_and_the_spec() -> None:
    assert a_pod_body({"spec": {"ignored": True}}, role="a") == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "mnist-0",
            "namespace": "ml",
            "labels": {"role": "a", **MANAGED_BY},
            "ownerReferences": [REFERENCE],
        },
        "spec": {"containers": [], "x": 1},
    }


def test_labels_of_the_template_stay_and_ours_win() -> None:
    template = {"metadata": {"labels": {"team": "rl", "role": "mine", "app.kubernetes.io/managed-by": "helm"}}}

    assert a_pod_body(template, role="a")["metadata"]["labels"] == {"team": "rl", "role": "a", **MANAGED_BY}


def test_annotations_and_finalizers_of_the_template_are_copied_and_names_are_not() -> None:
    template = {
        "metadata": {
            "name": "mine",
            "generateName": "mine-",
            "namespace": "other",
            "annotations": {"a": "b"},
            "finalizers": ["example.org/hold"],
            "creationTimestamp": None,
        }
    }

    assert a_pod_body(template)["metadata"] == {
        "name": "mnist-0",
        "namespace": "ml",
        "labels": MANAGED_BY,
        "ownerReferences": [REFERENCE],
        "annotations": {"a": "b"},
        "finalizers": ["example.org/hold"],
    }


@pytest.mark.parametrize("template", [{}, {"metadata": None}, {"metadata": {"labels": None}}], ids=str)
def test_a_template_without_labels_gets_ours(template: dict[str, Any]) -> None:
    assert a_pod_body(template, role="a")["metadata"]["labels"] == {"role": "a", **MANAGED_BY}


def a_service_body(ports: list[tuple[str, int]]) -> dict[str, Any]:
    return headless_service_body(
        name="mnist-0", namespace="ml", labels={"l": "1"}, selector={"s": "2"}, owner=REFERENCE, ports=ports
    )


def test_a_service_is_headless_and_answers_before_its_pod_is_ready() -> None:
    assert a_service_body([("di-port", 22273), ("x", 1)]) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "mnist-0",
            "namespace": "ml",
            "labels": {"l": "1", **MANAGED_BY},
            "ownerReferences": [REFERENCE],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {"s": "2"},
            "publishNotReadyAddresses": True,
            "ports": [{"name": "di-port", "port": 22273}, {"name": "x", "port": 1}],
        },
    }


def test_a_service_without_ports_has_no_list_of_them() -> None:
    assert "ports" not in a_service_body([])["spec"]


def test_reading_a_wrong_shape_raises_msgspecs_own_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        read({"spec": {"containers": "none"}})


# --- output ---


@pytest.mark.parametrize("kind", ["Pod", "Job", ""], ids=["pod", "batch Job", "template"])
def test_containers_that_do_not_say_otherwise_keep_their_last_output(kind: str) -> None:
    chosen = a_container("chosen", terminationMessagePolicy="File")
    template = a_template(a_container("main"), chosen, initContainers=[a_container("first")], template="unknown")
    body = {"kind": kind, "spec": {"template": template}} if kind == "Job" else {"kind": kind, **template}
    before = copy.deepcopy(body)

    kept = with_output_kept(body)
    spec = kept["spec"]["template"]["spec"] if kind == "Job" else kept["spec"]

    policies = {c["name"]: c["terminationMessagePolicy"] for c in (*spec["initContainers"], *spec["containers"])}
    assert policies == {"first": "FallbackToLogsOnError", "main": "FallbackToLogsOnError", "chosen": "File"}
    assert (body, spec["template"]) == (before, "unknown")
