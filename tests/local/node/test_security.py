"""Security contexts: what is done, what a node of a cluster refuses, and what local mode refuses or ignores."""

from typing import Any

import pytest

from tests.local.node.build import a_container, a_pod
from trainmaster.local.node.pod import Pod
from trainmaster.local.node.security import Identity, Policy, limits_of, refusal, unmet
from trainmaster.local.node.taint import KEY, is_tolerated, taints_with

USER = Identity(1000, 1000, frozenset({1000, 44}))
ROOT = Identity(0, 0, frozenset({0}))
MAC = Identity(501, 20, frozenset({20}), is_linux=False)


def of_container(**context: Any) -> Pod:
    return a_pod(a_container(securityContext=context))


def of_pod(**context: Any) -> Pod:
    return a_pod(securityContext=context)


@pytest.mark.parametrize(
    ("pod", "identity"),
    [
        pytest.param(a_pod(), ROOT, id="nothing"),
        pytest.param(of_pod(), ROOT, id="an empty context"),
        pytest.param(of_pod(runAsUser=1000, runAsGroup=1000, runAsNonRoot=True, fsGroup=1000), USER, id="who runs it"),
        pytest.param(of_pod(runAsUser=0, runAsNonRoot=False), ROOT, id="root that runs it"),
        pytest.param(of_pod(supplementalGroups=[44], supplementalGroupsPolicy="Merge", fsGroup=44), USER, id="groups"),
        pytest.param(of_container(allowPrivilegeEscalation=False, privileged=False), ROOT, id="no new privileges"),
        pytest.param(of_container(capabilities={"drop": ["ALL"]}), ROOT, id="root drops all capabilities"),
        pytest.param(of_container(capabilities={"drop": ["NET_RAW"]}), USER, id="a user has no capabilities to drop"),
        pytest.param(of_container(capabilities={"add": []}), USER, id="no capability is added"),
        pytest.param(of_container(appArmorProfile={"type": "Unconfined"}), USER, id="unconfined"),
        pytest.param(of_container(procMount="Default", readOnlyRootFilesystem=False), USER, id="defaults of the API"),
        pytest.param(a_pod(hostPID=True, hostIPC=True, hostNetwork=True, hostUsers=True), USER, id="the host's"),
        pytest.param(
            a_pod(a_container(securityContext={"runAsNonRoot": False}), securityContext={"runAsNonRoot": True}),
            ROOT,
            id="the container has the last word",
        ),
    ],
)
def test_what_a_process_of_this_user_has_anyway_is_accepted(pod: Pod, identity: Identity) -> None:
    assert unmet(pod, identity) == []
    assert refusal(pod, Policy(identity, is_strict=True)) is None


NOT_DONE = [
    pytest.param(of_pod(runAsUser=12345), USER, "spec.securityContext.runAsUser", False, id="another user"),
    pytest.param(of_pod(runAsUser=12345), ROOT, "spec.securityContext.runAsUser", True, id="another user, as root"),
    pytest.param(of_pod(runAsNonRoot=True), ROOT, "spec.securityContext.runAsNonRoot", True, id="not root, as root"),
    pytest.param(of_pod(runAsGroup=5), USER, "spec.securityContext.runAsGroup", False, id="another group"),
    pytest.param(of_pod(runAsGroup=5), ROOT, "spec.securityContext.runAsGroup", True, id="another group, as root"),
    pytest.param(of_pod(fsGroup=5), USER, "spec.securityContext.fsGroup", False, id="a group of files"),
    pytest.param(
        of_pod(supplementalGroups=[44, 5]), USER, "spec.securityContext.supplementalGroups", False, id="groups"
    ),
    pytest.param(
        of_pod(supplementalGroupsPolicy="Strict"),
        USER,
        "spec.securityContext.supplementalGroupsPolicy",
        False,
        id="no other groups",
    ),
    pytest.param(
        of_pod(seLinuxOptions={"level": "s0"}), USER, "spec.securityContext.seLinuxOptions", False, id="SELinux"
    ),
    pytest.param(of_pod(sysctls=[{"name": "a"}]), USER, "spec.securityContext.sysctls", False, id="sysctls"),
    pytest.param(
        of_pod(seccompProfile={"type": "Localhost"}), USER, "spec.securityContext.seccompProfile", False, id="seccomp"
    ),
    pytest.param(
        of_pod(appArmorProfile={"type": "Localhost"}),
        USER,
        "spec.securityContext.appArmorProfile",
        False,
        id="AppArmor",
    ),
    pytest.param(of_pod(newField=False), USER, "spec.securityContext.newField", False, id="a field of next year"),
    pytest.param(
        of_container(runAsUser=1), USER, "container main: securityContext.runAsUser", False, id="of a container"
    ),
    pytest.param(
        of_container(privileged=True), ROOT, "container main: securityContext.privileged", False, id="privileged"
    ),
    pytest.param(
        of_container(readOnlyRootFilesystem=True),
        USER,
        "container main: securityContext.readOnlyRootFilesystem",
        False,
        id="read-only",
    ),
    pytest.param(
        of_container(capabilities={"add": ["SYS_ADMIN"]}),
        USER,
        "container main: securityContext.capabilities.add",
        False,
        id="a capability",
    ),
    pytest.param(
        of_container(capabilities={"drop": ["NET_RAW"]}),
        ROOT,
        "container main: securityContext.capabilities.drop",
        True,
        id="root without one capability",
    ),
    pytest.param(
        of_container(allowPrivilegeEscalation=False),
        MAC,
        "container main: securityContext.allowPrivilegeEscalation",
        False,
        id="no new privileges on macOS",
    ),
    pytest.param(
        a_pod(initContainers=[a_container("i", securityContext={"runAsUser": 1})]),
        USER,
        "container i: securityContext.runAsUser",
        False,
        id="of an init container",
    ),
    pytest.param(a_pod(hostUsers=False), USER, "spec.hostUsers", False, id="a user namespace"),
    pytest.param(a_pod(runtimeClassName="gvisor"), USER, "spec.runtimeClassName", False, id="a sandbox"),
]


@pytest.mark.parametrize(("pod", "identity", "field", "is_excess"), NOT_DONE)
def test_a_node_of_a_cluster_refuses_what_it_cannot_do_by_the_name_of_the_field(
    pod: Pod, identity: Identity, field: str, is_excess: bool
) -> None:
    failure = refusal(pod, Policy(identity, is_strict=True))

    assert failure is not None
    assert failure.reason == "UnsupportedSecurityContext"
    assert failure.message.startswith(f"{field}: ")
    assert failure.message.endswith("; remove it, or use another node")


@pytest.mark.parametrize("field", ["seccompProfile", "appArmorProfile"])
@pytest.mark.parametrize("is_strict", [True, False], ids=["node", "local mode"])
def test_the_default_profile_that_the_restricted_standard_asks_for_is_mentioned_and_not_refused(
    field: str, is_strict: bool
) -> None:
    pod = of_pod(**{field: {"type": "RuntimeDefault"}})

    assert refusal(pod, Policy(USER, is_strict=is_strict)) is None
    assert [str(each) for each in unmet(pod, USER)] == [
        f"spec.securityContext.{field}: processes of this node have no RuntimeDefault profile"
    ]


@pytest.mark.parametrize(("pod", "identity", "field", "is_excess"), NOT_DONE)
def test_local_mode_refuses_only_what_would_be_root_against_the_pods_will(
    pod: Pod, identity: Identity, field: str, is_excess: bool
) -> None:
    failure = refusal(pod, Policy(identity))

    assert (failure is not None) == is_excess
    assert [each.field for each in unmet(pod, identity)] == [field]


def test_a_field_of_the_pod_is_named_once() -> None:
    pod = a_pod(a_container("a"), a_container("b"), securityContext={"runAsUser": 1})

    assert [str(each) for each in unmet(pod, USER)] == [
        "spec.securityContext.runAsUser: processes of this node run as user 1000, not as 1"
    ]


@pytest.mark.parametrize(
    ("context", "limits"),
    [
        ({}, (False, False)),
        ({"allowPrivilegeEscalation": True}, (False, False)),
        ({"allowPrivilegeEscalation": False}, (True, False)),
        ({"capabilities": {"drop": ["all"]}}, (True, True)),
        ({"capabilities": {"drop": ["CAP_NET_RAW"]}}, (True, False)),
    ],
)
def test_the_shim_takes_away_what_the_container_renounces(context: dict[str, Any], limits: tuple[bool, bool]) -> None:
    container = a_container(securityContext=context)

    found = limits_of(a_pod(container), container)

    assert (found["noNewPrivileges"], found["noCapabilities"]) == limits


# --- the taint ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tolerations", "is_enough"),
    [
        pytest.param(None, False, id="none"),
        pytest.param([{"operator": "Exists"}], False, id="everything"),
        pytest.param([{"operator": "Exists", "effect": "NoSchedule"}], False, id="every taint of this effect"),
        pytest.param([{"key": "other", "operator": "Exists"}], False, id="another taint"),
        pytest.param([{"key": KEY, "operator": "Exists", "effect": "NoExecute"}], False, id="another effect"),
        pytest.param([{"key": KEY, "value": "x"}], False, id="another value"),
        pytest.param([{"key": KEY, "operator": "Exists"}], True, id="by its key"),
        pytest.param([{"key": KEY, "operator": "Exists", "effect": "NoSchedule"}], True, id="by key and effect"),
        pytest.param([{"key": KEY, "operator": "Equal", "effect": "NoSchedule"}], True, id="by its empty value"),
    ],
)
def test_a_pod_tolerates_the_node_only_by_the_key_of_its_taint(tolerations: Any, is_enough: bool) -> None:
    pod = a_pod(tolerations=tolerations)
    policy = Policy(USER, is_tainted=True)

    assert is_tolerated(pod) == is_enough
    assert (refusal(pod, policy) is None) == is_enough
    assert refusal(pod, Policy(USER)) is None


def test_a_pod_that_does_not_tolerate_the_node_is_told_how() -> None:
    failure = refusal(a_pod(), Policy(USER, is_tainted=True))

    assert failure is not None
    assert (failure.reason, "add a toleration with the key trainmaster.dev/process-node" in failure.message) == (
        "TaintToleration",
        True,
    )


def test_taints_of_others_stay() -> None:
    other, ours = {"key": "a", "effect": "NoExecute"}, {"key": KEY, "effect": "NoSchedule"}

    assert taints_with([other], is_tainted=True) == [other, ours]
    assert taints_with([ours, other], is_tainted=True) == [other, ours]
    assert taints_with([ours, other], is_tainted=False) == [other]
