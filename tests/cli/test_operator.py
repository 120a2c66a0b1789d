import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import structlog
from click.testing import CliRunner, Result

from trainmaster.cli.operator import operator
from trainmaster.cli.operator_process import OperatorOptions, _delegated, _job_settings
from trainmaster.core.errors import BadConfig
from trainmaster.core.ids import Key
from trainmaster.kinds.base import Settings
from trainmaster.kinds.registry import KINDS, all_resource_kinds
from trainmaster.kube.config import Config
from trainmaster.wiring.manager import chosen

Run = Callable[..., Result]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[OperatorOptions]:
    """What the operator would have been started with; it is not."""
    started: list[OperatorOptions] = []
    monkeypatch.setattr("trainmaster.cli.operator_process.run_operator", started.append)
    monkeypatch.setattr("trainmaster.cli.operator.configure_logging", lambda style, verbosity: None)
    return started


def run(*args: str) -> Result:
    return CliRunner().invoke(operator, args)


DEFAULTS = OperatorOptions(
    kubeconfig="",
    context="",
    master="",
    run_in_cluster=False,
    namespace="",
    kinds=(),
    install_crds=False,
    server_url="di-server.di-system:8080",
    service_domain_name="svc.cluster.local",
    agconfig_namespace="",
    agconfig_name="aggregator-config",
    controller_config_file="",
    gang_scheduler_name="",
    max_host_ports_per_job=1000,
    max_host_ports_per_namespace=2000,
    creating_duration_period=900.0,
    creating_restart_period=0.0,
    enable_creating_failed=True,
    node_fail_grace_period=30.0,
    device_fail_grace_period=900.0,
    bad_node_conditions=(),
    thread_num=32,
    request_timeout=30.0,
    leader_elect=True,
    leader_elect_lease_duration=15.0,
    leader_elect_renew_deadline=10.0,
    leader_elect_retry_period=2.0,
    leader_elect_resource_name="",
    leader_elect_resource_namespace="",
    delegated_namespaces=(),
    metrics_bind_address=":8080",
    health_probe_bind_address=":8081",
)


@pytest.mark.parametrize(
    ("args", "fields"),
    [
        pytest.param([], {}, id="defaults"),
        pytest.param(["--kubeconfig", "/k", "--context", "dev"], {"kubeconfig": "/k", "context": "dev"}, id="where"),
        pytest.param(["--master=http://a:1"], {"master": "http://a:1"}, id="master"),
        pytest.param(["--controller-config-file", "/c"], {"controller_config_file": "/c"}, id="accelerators"),
        pytest.param(["--controller_config_file=/c"], {"controller_config_file": "/c"}, id="as mxnet-operator had it"),
        pytest.param(["--run-in-cluster=true"], {"run_in_cluster": True}, id="in cluster"),
        pytest.param(["--namespace=ml"], {"namespace": "ml"}, id="namespace"),
        pytest.param(["--enable-scheme=dijob"], {"kinds": ("dijob",)}, id="one kind, as training-operator writes it"),
        pytest.param(
            ["--agconfig-namespace=ns", "--agconfig-name=ag"],
            {"agconfig_namespace": "ns", "agconfig_name": "ag"},
            id="the AggregatorConfig",
        ),
        pytest.param(["--server-address", "di:80"], {"server_url": "di:80"}, id="the older name of server-url"),
        pytest.param(
            ["--creating-restart-period=1h", "--creating-duration-period=5m", "--enable-creating-failed=false"],
            {"creating_restart_period": 3600.0, "creating_duration_period": 300.0, "enable_creating_failed": False},
            id="containers that cannot be created",
        ),
        pytest.param(["--enable-creating-failed=true"], {}, id="as trainingjob-operator was started"),
        pytest.param(
            [
                "--node-fail-grace-period=1m",
                "--device-fail-grace-period=1h",
                "--bad-node-condition=A",
                "--bad-node-condition",
                "B",
            ],
            {"node_fail_grace_period": 60.0, "device_fail_grace_period": 3600.0, "bad_node_conditions": ("A", "B")},
            id="nodes",
        ),
        pytest.param(
            ["--service-domain-name=svc.x.org"], {"service_domain_name": "svc.x.org"}, id="another DNS domain"
        ),
        pytest.param(["--gang-scheduler-name=volcano"], {"gang_scheduler_name": "volcano"}, id="gangs"),
        pytest.param(
            ["--max-host-ports-per-job=10", "--max-host-ports-per-namespace=20"],
            {"max_host_ports_per_job": 10, "max_host_ports_per_namespace": 20},
            id="quotas of ports",
        ),
        pytest.param(["--thread-num", "4"], {"thread_num": 4}, id="threads"),
        pytest.param(["--leader-elect"], {}, id="election"),
        pytest.param(["--leader-elect=true"], {}, id="election as Go writes it"),
        pytest.param(["--leader-elect=false"], {"leader_elect": False}, id="no election"),
        pytest.param(["-leader-elect=false"], {"leader_elect": False}, id="one dash, as Go allows it"),
        pytest.param(["-thread-num", "4", "-v=8"], {"thread_num": 4}, id="one dash and a value"),
        pytest.param(["--install-crds"], {"install_crds": True}, id="definitions"),
        pytest.param(
            ["--leader-elect-resource-name=a", "--leader-elect-resource-namespace=b"],
            {"leader_elect_resource_name": "a", "leader_elect_resource_namespace": "b"},
            id="one lease of this name",
        ),
        pytest.param(
            ["--leader-elect-lease-duration=1m30s", "--leader-elect-renew-deadline=1m"],
            {"leader_elect_lease_duration": 90.0, "leader_elect_renew_deadline": 60.0},
            id="durations",
        ),
        pytest.param(
            ["--delegated-namespace=a", "--delegated-namespace", "b"],
            {"delegated_namespaces": ("a", "b")},
            id="namespaces with an operator of their own",
        ),
        pytest.param(["--di-server-url=http://di:1"], {"server_url": "http://di:1"}, id="server-url in v1.1"),
        pytest.param(["--metric-addr=:8443"], {"metrics_bind_address": ":8443"}, id="metrics in v1.1"),
        pytest.param(["--probe-addr=:1"], {"health_probe_bind_address": ":1"}, id="health in v1.1"),
        pytest.param(["--metrics-bind-address=0"], {"metrics_bind_address": "0"}, id="no metrics"),
    ],
)
def test_options_reach_the_operator(given: list[OperatorOptions], args: list[str], fields: dict[str, Any]) -> None:
    result = run(*args)

    assert (result.exit_code, result.output) == (0, "")
    assert given == [msgspec.structs.replace(DEFAULTS, **fields)]


@pytest.mark.parametrize(
    ("args", "option"),
    [
        pytest.param(["--logtostderr"], "--logtostderr", id="flag"),
        pytest.param(["--logtostderr=true"], "--logtostderr", id="flag as Go writes it"),
        pytest.param(["--logtostderr=false"], "--logtostderr", id="switched off is ignored, too"),
        pytest.param(["--resync-period=30s"], "--resync-period", id="period"),
        pytest.param(["--gc-interval=10m"], "--gc-interval", id="garbage"),
        pytest.param(["--chaos-level", "-1"], "--chaos-level", id="chaos"),
        pytest.param(["--alsologtostderr=true"], "--alsologtostderr", id="also stderr"),
        pytest.param(["-alsologtostderr", "-v=8"], "--alsologtostderr", id="as the mxnet-operator's guide writes it"),
        pytest.param(["--leader-elect-resource-lock", "leases"], "--leader-elect-resource-lock", id="lock"),
        pytest.param(["--sync-period=1m"], "--sync-period", id="period of v1.1"),
        pytest.param(["--qps=100"], "--qps", id="requests a second"),
        pytest.param(["--burst=200"], "--burst", id="burst"),
        pytest.param(["--zap-devel=true"], "--zap-devel", id="zap flag"),
        pytest.param(["--zap-encoder=json"], "--zap-encoder", id="zap encoder"),
        pytest.param(["--zap-log-level=debug"], "--zap-log-level", id="zap level"),
        pytest.param(["--zap-stacktrace-level=error"], "--zap-stacktrace-level", id="zap stack traces"),
        pytest.param(["--zap-time-encoding=iso8601"], "--zap-time-encoding", id="zap times"),
    ],
)
def test_an_option_without_meaning_is_accepted_with_a_warning(
    given: list[OperatorOptions], args: list[str], option: str
) -> None:
    with structlog.testing.capture_logs() as logs:
        result = run(*args)

    assert result.exit_code == 0
    assert given == [DEFAULTS]
    assert logs == [{"event": "option has no effect and is ignored", "option": option, "log_level": "warning"}]


def test_the_command_of_the_trainingjob_operators_guide_starts(given: list[OperatorOptions]) -> None:
    command = "--master 10.0.0.1:8080 --v 4 --thread-num 1000 --logtostderr --leader-elect=true"
    result = run(*command.split(), "--enable-creating-failed=true")

    assert result.exit_code == 0
    assert given == [msgspec.structs.replace(DEFAULTS, master="10.0.0.1:8080", thread_num=1000)]


def test_the_environment_of_the_mxnet_operators_guide_names_the_cluster(
    given: list[OperatorOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"USE_KUBE_CONFIG": "/home/me/.kube/config", "MY_POD_NAMESPACE": "default", "MY_POD_NAME": "my-pod"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    run()
    run("--kubeconfig=/other")

    assert [options.kubeconfig for options in given] == ["/home/me/.kube/config", "/other"]
    assert {options.leader_elect_resource_namespace for options in given} == {""}


def test_variables_of_the_mxnet_operator_that_have_no_effect_are_warned_of(
    given: list[OperatorOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_POD_NAMESPACE", "default")
    monkeypatch.setenv("MY_POD_NAME", "my-pod")
    with structlog.testing.capture_logs() as logs:
        run()

    assert [(line["log_level"], line["event"], line["variable"], line["hint"]) for line in logs] == [
        (
            "warning",
            "variable has no effect and is ignored",
            "MY_POD_NAMESPACE",
            "jobs of all namespaces are reconciled; --namespace=default limits the operator to that namespace",
        ),
        (
            "warning",
            "variable has no effect and is ignored",
            "MY_POD_NAME",
            "the holder of the Leases is named after the host, and POD_UID or the process",
        ),
    ]


def test_the_namespace_of_the_mxnet_operator_is_no_surprise_beside_ours(
    given: list[OperatorOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_POD_NAMESPACE", "default")
    with structlog.testing.capture_logs() as logs:
        run("--namespace=default")

    assert logs == []


def test_it_says_its_version_and_ends(given: list[OperatorOptions]) -> None:
    result = run("-alsologtostderr", "-v=8", "--version")

    assert result.exit_code == 0
    assert re.search(r"version \d+\.\d+", result.output)
    assert given == []


def test_nothing_is_warned_of_that_was_not_given(given: list[OperatorOptions]) -> None:
    with structlog.testing.capture_logs() as logs:
        run()

    assert logs == []


@pytest.mark.parametrize(
    ("args", "said"),
    [
        pytest.param(["--leader-elect=maybe"], "'maybe' is neither true nor false", id="flag"),
        pytest.param(["--thread-num=0"], "0 is not in the range 1<=x<=1000", id="no threads"),
        pytest.param(["--request-timeout=30"], "'30' is not a duration", id="no unit"),
        pytest.param(["--log-format=xml"], "'xml' is not one of", id="log format"),
        pytest.param(["--v=loud"], "'loud' is not a valid integer", id="verbosity"),
        pytest.param(["job.yaml"], "Got unexpected extra argument (job.yaml)", id="extra argument"),
    ],
)
def test_a_bad_option_is_told_and_nothing_starts(given: list[OperatorOptions], args: list[str], said: str) -> None:
    result = run(*args)

    assert result.exit_code == 2
    assert said in result.stderr
    assert given == []


@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        pytest.param((), [resource.kind for resource in dict.fromkeys(kind.resource for kind in KINDS)], id="all"),
        pytest.param(("dijob",), ["DIJob"], id="one"),
        pytest.param(("mxjob",), ["MXJob", "MxJob", "MxJob"], id="a name of three"),
        pytest.param(("mxjob.kubeflow.org",), ["MXJob"], id="one of three, by its group"),
        pytest.param(("AITrainingJob", "DIJOB"), ["DIJob", "AITrainingJob"], id="in any order and case"),
    ],
)
def test_kinds_are_chosen_by_name(names: tuple[str, ...], kinds: list[str]) -> None:
    assert [each.resource.kind for each in chosen(all_resource_kinds(Settings()), names)] == kinds


def test_a_kind_that_is_not_there_is_told() -> None:
    with pytest.raises(BadConfig) as told:
        chosen(all_resource_kinds(Settings())[:1], ("dijob", "tfjob"))

    assert str(told.value) == (
        "--enable-scheme tfjob: there is no such kind; there are dijob, dijob-v2alpha1, dijob.diengine.opendilab.org"
    )


@pytest.mark.parametrize(
    ("fields", "pod_namespace", "namespace"),
    [
        pytest.param({}, "ml-platform", "ml-platform", id="the pod's own namespace"),
        pytest.param({}, "", "trainmaster-system", id="outside of a cluster"),
        pytest.param({"namespace": "team"}, "ml-platform", "team", id="an operator of one namespace"),
        pytest.param({"agconfig_namespace": "di-system", "namespace": "team"}, "x", "di-system", id="as told"),
    ],
)
def test_templates_for_jobs_of_all_namespaces_come_from_the_installations_namespace(
    fields: dict[str, Any], pod_namespace: str, namespace: str
) -> None:
    """Whoever may write there decides what runs beside the jobs of everybody."""
    config = Config("https://127.0.0.1:1", "test", namespace="context-of-somebody", pod_namespace=pod_namespace)
    settings = _job_settings(msgspec.structs.replace(DEFAULTS, **fields), config)

    expected = Key(namespace, "aggregator-config")
    assert (settings.aggregator_config, settings.dijob_aggregator_config) == (expected, expected)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({"namespace": "team"}, "it is for an operator of all namespaces", id="of one namespace"),
        pytest.param({"leader_elect_resource_namespace": "a"}, "this operator has its own Leases there", id="its own"),
    ],
)
def test_a_namespace_that_cannot_be_delegated_is_told(fields: dict[str, Any], said: str) -> None:
    options = msgspec.structs.replace(DEFAULTS, delegated_namespaces=("a",), **fields)

    with pytest.raises(BadConfig, match=f"--delegated-namespace a: {said}"):
        _delegated(options)
