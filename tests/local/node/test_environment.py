"""Environment and command of a container, by tables."""

from typing import Any

import pytest

from tests.local.node.build import a_container, a_pod
from trainmaster.local.node.environment import (
    CONFIG_MAP,
    SECRET,
    BadReference,
    Source,
    VariableContext,
    command_of,
    data_of,
    direct,
    environment,
    expand,
    inherited,
    references,
)

Object = dict[str, Any]

SOURCES = {
    Source(CONFIG_MAP, "settings"): {"k": b"v", "other": b"w"},
    Source(SECRET, "login"): {"p": b"pw"},
    Source(CONFIG_MAP, "gone"): None,
}
AROUND = VariableContext(SOURCES, {"cpu": "8", "memory": "16Gi"})


def env_of(*env: Object, **fields: Any) -> dict[str, str]:
    container = a_container(env=list(env), **fields)
    meta = {"labels": {"app": "x", "a/b": "c"}, "annotations": {"note": 'say "hi"'}}
    pod = a_pod(container, metadata=meta, nodeName="n1", serviceAccountName="robot")
    return environment(pod, container, AROUND)


def origin(name: str, **value: Any) -> Object:
    return {"name": name, "valueFrom": value}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("plain", "plain"),
        ("$(A)", "1"),
        ("x$(A)y$(B)z", "x1y2z"),
        ("$(NONE)", "$(NONE)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("cost: 5$", "cost: 5$"),
        ("$()", "$()"),
        ("$(A)$(A)", "11"),
        ("$(C)", "$(A)"),
    ],
)
def test_expansion(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1", "B": "2", "C": "$(A)"}) == expanded


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "pod"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "uid-1"),
        ("metadata.labels['app']", "x"),
        ("metadata.labels['a/b']", "c"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['note']", 'say "hi"'),
        ("metadata.labels", 'a/b="c"\napp="x"'),
        ("metadata.annotations", 'note="say \\"hi\\""'),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "robot"),
        ("status.podIP", "127.0.0.1"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_fields_of_the_pod(path: str, value: str) -> None:
    assert env_of(origin("X", fieldRef={"fieldPath": path})) == {"X": value}


@pytest.mark.parametrize("path", ["status.podIP", "status.podIPs"])
def test_a_pod_with_an_address_of_its_own_sees_it(path: str) -> None:
    container = a_container(env=[origin("X", fieldRef={"fieldPath": path})])

    assert environment(a_pod(container), container, AROUND._replace(address="127.64.0.1")) == {"X": "127.64.0.1"}


RESOURCES = {"limits": {"cpu": "1500m", "memory": "1Gi"}, "requests": {"cpu": "250m"}}


@pytest.mark.parametrize(
    ("reference", "resources", "value"),
    [
        ({"resource": "limits.cpu"}, RESOURCES, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, RESOURCES, "1500"),
        ({"resource": "limits.memory", "divisor": "1Mi"}, RESOURCES, "1024"),
        ({"resource": "limits.memory", "divisor": "0"}, RESOURCES, str(2**30)),
        ({"resource": "requests.cpu", "divisor": "1m"}, RESOURCES, "250"),
        ({"resource": "limits.cpu"}, {}, "8"),
        ({"resource": "limits.memory", "divisor": "1Gi"}, {}, "16"),
        ({"resource": "requests.memory"}, {}, "0"),
    ],
)
def test_amounts(reference: Object, resources: Object, value: str) -> None:
    assert env_of(origin("X", resourceFieldRef=reference), resources=resources) == {"X": value}


def test_later_variables_can_refer_to_earlier_ones() -> None:
    found = env_of({"name": "B", "value": "$(A)"}, {"name": "A", "value": "1"}, {"name": "C", "value": "$(A)$(B)"})

    assert found == {"B": "$(A)", "A": "1", "C": "1$(A)"}


def test_env_overrides_env_from_and_can_refer_to_it() -> None:
    sources = [{"configMapRef": {"name": "settings"}}, {"prefix": "S_", "secretRef": {"name": "login"}}]

    found = env_of({"name": "other", "value": "mine"}, {"name": "X", "value": "$(k)$(S_p)"}, envFrom=sources)

    assert found == {"k": "v", "other": "mine", "S_p": "pw", "X": "vpw"}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"configMapKeyRef": {"name": "settings", "key": "k"}}, {"X": "v"}),
        ({"secretKeyRef": {"name": "login", "key": "p"}}, {"X": "pw"}),
        ({"configMapKeyRef": {"name": "gone", "key": "k", "optional": True}}, {}),
        ({"configMapKeyRef": {"name": "settings", "key": "none", "optional": True}}, {}),
    ],
)
def test_values_of_objects(value: Object, found: Object) -> None:
    assert env_of(origin("X", **value)) == found


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"configMapKeyRef": {"name": "gone", "key": "k"}}, 'configmap "gone" not found'),
        ({"secretKeyRef": {"name": "none", "key": "k"}}, 'secret "none" not found'),
        ({"configMapKeyRef": {"name": "settings", "key": "x"}}, "couldn't find key x in ConfigMap ns/settings"),
        ({"secretKeyRef": {"name": "login", "key": "x"}}, "couldn't find key x in Secret ns/login"),
        ({"fieldRef": {"fieldPath": "spec.secret"}}, "unsupported fieldPath: spec.secret"),
        ({"fileKeyRef": {}}, "valueFrom with fileKeyRef is not supported in local mode"),
    ],
)
def test_missing_references_are_named(value: Object, sentence: str) -> None:
    with pytest.raises(BadReference) as refused:
        env_of(origin("X", **value))

    assert str(refused.value) == sentence


def test_references_are_found() -> None:
    container = a_container(
        env=[
            origin("A", secretKeyRef={"name": "s", "key": "k"}),
            origin("B", configMapKeyRef={"name": "c", "key": "k"}),
        ],
        envFrom=[{"configMapRef": {"name": "d"}}, {"secretRef": {"name": "t"}}],
    )

    assert set(references(container)) == {
        *(Source(SECRET, name) for name in "st"),
        *(Source(CONFIG_MAP, name) for name in "cd"),
    }


def test_command_and_arguments_are_expanded() -> None:
    assert command_of({"command": ["run", "$(A)"], "args": ["$$(A)"]}, {"A": "1"}) == ["run", "1", "$(A)"]


def test_data_of_objects_is_decoded() -> None:
    assert data_of({"kind": "ConfigMap", "data": {"a": "x"}, "binaryData": {"b": "AAE="}}) == {"a": b"x", "b": b"\0\1"}
    assert data_of({"kind": "Secret", "data": {"p": "cHc="}}) == {"p": b"pw"}
    assert data_of({"kind": "Secret"}) == {}


def test_little_is_inherited() -> None:
    environ = {"PATH": "/bin", "LC_ALL": "C", "VIRTUAL_ENV": "/v", "KUBECONFIG": "x", "AWS_SECRET_ACCESS_KEY": "x"}

    assert inherited(environ) == {"PATH": "/bin", "LC_ALL": "C", "VIRTUAL_ENV": "/v", "PYTHONUNBUFFERED": "1"}


def test_jobs_of_the_same_user_inherit_what_trainings_need() -> None:
    environ = {
        "CUDA_VISIBLE_DEVICES": "1",
        "OMP_NUM_THREADS": "4",
        "WANDB_API_KEY": "k",
        "HF_HOME": "/hf",
        "https_proxy": "p",
        "NO_PROXY": "n",
    }
    default = {"PYTHONUNBUFFERED": "1"}

    assert inherited(environ | {"AWS_SECRET_ACCESS_KEY": "x"}, is_own=True) == environ | default
    assert inherited(environ) == default


@pytest.mark.parametrize(
    ("environ", "given"),
    [({"HTTPS_PROXY": "p"}, ""), ({"http_proxy": "p", "NO_PROXY": ".corp"}, ".corp,"), ({"NO_PROXY": ".corp"}, None)],
)
def test_a_proxy_is_not_used_for_this_machine(environ: dict[str, str], given: str | None) -> None:
    here = "localhost,127.0.0.1,127.0.0.0/8,.ns,.svc,.cluster.local"
    assert direct(environ, "ns") == ({} if given is None else dict.fromkeys(("no_proxy", "NO_PROXY"), given + here))


def test_pythonunbuffered_of_the_user_replaces_the_default() -> None:
    assert inherited({"PYTHONUNBUFFERED": ""}) == {"PYTHONUNBUFFERED": ""}
