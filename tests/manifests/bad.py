"""Jobs that cannot run as written, and who says so.

The API server refuses a row that is ``rejected``, with ``says`` in its message. What it accepts must end in a
``condition`` of the job with ``says`` in its message: either the operator's own check (``Accepted`` is False), or the
API server's answer to a pod or service of the job (``PodCreateFailed``).
"""

from typing import Any, Literal, NamedTuple

from tests.manifests.build import (
    TRAINER,
    Manifest,
    aitrainingjob,
    container,
    coordinated,
    crew,
    dijob,
    ditask,
    mlkubejob,
    mx_replica,
    mxjob,
    nervexjob,
    replica,
    replicated,
    task,
    template,
    without,
)


class Row(NamedTuple):
    """``otherwise`` is what the operator's own check says of a rejected job, should it get in by another way; it is
    empty where such a job cannot exist, or where the API server would refuse its pods."""

    id: str
    manifest: Manifest
    expected: Literal["rejected", "condition"]
    says: str
    otherwise: str = ""


SHAPE = "a DIJob has a coordinator (v1alpha1) or tasks (v2alpha1), and not both"
NEXT_LINE = "\x85"
"""U+0085: some readers of lines and of YAML take it for the end of a line."""


def _rejected(id_: str, manifest: Manifest, says: str, otherwise: str = "") -> Row:
    return Row(id_, manifest, "rejected", says, otherwise)


def _condition(id_: str, manifest: Manifest, says: str) -> Row:
    return Row(id_, manifest, "condition", says)


def _ports(*ports: Any) -> Manifest:
    return coordinated(template(container(ports=list(ports))))


_METADATA = (
    _rejected("name-starts-with-a-digit", dijob("1st"), "must start with a letter", "must start with a letter"),
    _rejected("name-with-a-dot", dijob("v1.2"), "it becomes part of the names of services", "must start with a letter"),
    _rejected("name-in-upper-case", dijob("Job"), "a lowercase RFC 1123 subdomain must consist of"),
    _rejected("name-with-a-next-line", dijob(f"a{NEXT_LINE}b"), "a lowercase RFC 1123 subdomain must consist of"),
    _rejected("name-is-a-path", dijob("../../etc/passwd"), "metadata.name: Invalid value"),
    _rejected("name-too-long", dijob("a" * 52), "would have 64 characters, 63 are allowed", "63 are allowed"),
    _rejected(
        "name-too-long-for-collectors",
        dijob("a" * 48, collector={"template": template()}),
        '-collector-xxxxx" would have 64 characters, 63 are allowed; shorten the name by 1',
        "-collector-xxxxx' would have 64 characters",
    ),
    _rejected(
        "name-too-long-for-ddp-learners",
        dijob("a" * 46, learner={"template": template()}),
        '-ddp-learner-xxxxx" would have 64 characters, 63 are allowed; shorten the name by 1',
        "-ddp-learner-xxxxx' would have 64 characters",
    ),
    _rejected(
        "generated-name-starts-with-a-digit",
        without(dijob(), "metadata") | {"metadata": {"generateName": "1-"}},
        "must start with a letter",
    ),
    _rejected(
        "5-megabytes-of-annotations",
        dijob(metadata={"annotations": {"note": "x" * 5_000_000}}),
        "Request entity too large",
    ),
    _rejected(
        "annotations-of-300-kilobytes",
        dijob(metadata={"annotations": {"note": "x" * 300_000}}),
        "metadata.annotations: Too long: may not be more than 262144 bytes",
    ),
    _rejected(
        "finalizer-is-garbage",
        dijob(metadata={"finalizers": ["no such thing!"]}),
        'metadata.finalizers: Invalid value: "no such thing!"',
    ),
    _rejected(
        "label-value-with-a-next-line",
        dijob(metadata={"labels": {"team": f"a{NEXT_LINE}b"}}),
        "metadata.labels: Invalid value",
    ),
)

_DIJOB = (
    _rejected("no-spec", without(dijob(), "spec"), "spec: Required value", "missing required field `spec`"),
    _rejected("spec-is-null", dijob() | {"spec": None}, "spec: Required value", "spec: Expected `object`, got `null`"),
    _rejected(
        "no-coordinator",
        dijob() | {"spec": {"collector": {"template": template()}}},
        f"spec: Invalid value: {SHAPE}",
        f"spec: {SHAPE}",
    ),
    _rejected(
        "no-template",
        dijob(coordinator={}),
        "spec.coordinator.template: Required value",
        "missing required field `template`",
    ),
    _rejected(
        "dijob-restart-scope-of-a-replica",
        dijob(runPolicy={"restartScope": "Replica"}),
        'spec.runPolicy.restartScope: Unsupported value: "Replica"',
        "spec.runPolicy.restartScope: Invalid enum value 'Replica'",
    ),
    _rejected(
        "template-is-a-string",
        coordinated("busybox"),
        "spec.coordinator.template: Invalid value",
        "spec.coordinator.template: Expected `object`, got `str`",
    ),
    _rejected(
        "template-without-spec",
        coordinated({"metadata": {}}),
        "spec.coordinator.template.spec: Required value",
        "spec.coordinator.template: Object missing required field `spec`",
    ),
    _rejected(
        "no-containers",
        coordinated({"spec": {}}),
        "spec.coordinator.template.spec.containers: Required value",
        "spec.coordinator.template.spec: Object missing required field `containers`",
    ),
    _rejected(
        "empty-containers",
        coordinated({"spec": {"containers": []}}),
        "spec.coordinator.template.spec.containers in body should have at least 1 items",
        "spec.coordinator.template.spec.containers: Expected `array` of length >= 1",
    ),
    _rejected(
        "container-is-null",
        coordinated({"spec": {"containers": [None]}}),
        "spec.coordinator.template.spec.containers[0]: Invalid value",
        "spec.coordinator.template.spec.containers[0]: Expected `object`, got `null`",
    ),
    _rejected(
        "container-without-a-name",
        coordinated(template({"image": "busybox"})),
        "spec.coordinator.template.spec.containers[0].name: Required value",
        "spec.coordinator.template.spec.containers[0]: Object missing required field `name`",
    ),
    _rejected(
        "two-containers-of-one-name",
        coordinated(template(container(), container())),
        "spec.coordinator.template.spec.containers[1]: Duplicate value",
    ),
    _rejected(
        "two-volumes-of-one-name",
        coordinated(template(volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}])),
        "spec.coordinator.template.spec.volumes[1]: Duplicate value",
    ),
    _rejected(
        "two-job-volumes-of-one-name",
        dijob(volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]),
        "spec.volumes[1]: Duplicate value",
    ),
    _rejected("job-volume-without-a-name", dijob(volumes=[{"emptyDir": {}}]), "spec.volumes[0].name: Required value"),
    _rejected(
        "volumes-are-a-map",
        dijob(volumes={"v": {"emptyDir": {}}}),
        "spec.volumes: Invalid value",
        "spec.volumes: Expected `array`, got `object`",
    ),
    _rejected(
        "env-is-a-map",
        coordinated(template(container(env={"A": "1"}))),
        "spec.coordinator.template.spec.containers[0].env: Invalid value",
        "spec.coordinator.template.spec.containers[0].env: Expected `array | null`, got `object`",
    ),
    _rejected(
        "port-70000",
        _ports({"containerPort": 70000}),
        "should be less than or equal to 65535",
        "spec.coordinator.template.spec.containers[0].ports[0].containerPort: Expected `int` <= 65535",
    ),
    _rejected(
        "port-is-a-string",
        _ports({"containerPort": "80"}),
        "containerPort: Invalid value",
        "ports[0].containerPort: Expected `int`, got `str`",
    ),
    _rejected(
        "port-without-a-number",
        _ports({"name": "di-port"}),
        "ports[0].containerPort: Required value",
        "ports[0]: Object missing required field `containerPort`",
    ),
    _rejected(
        "template-label-is-a-number",
        coordinated(template(metadata={"labels": {"team": 7}})),
        "spec.coordinator.template.metadata.labels.team: Invalid value",
        "spec.coordinator.template.metadata.labels[...]: Expected `str`, got `int`",
    ),
    _rejected(
        "unknown-clean-pod-policy",
        dijob(cleanPodPolicy="Sometimes"),
        'spec.cleanPodPolicy: Unsupported value: "Sometimes"',
        "spec.cleanPodPolicy: Invalid enum value 'Sometimes'",
    ),
    _rejected(
        "group-is-a-number", dijob(group=7), "spec.group: Invalid value", "spec.group: Expected `str`, got `int`"
    ),
    _rejected(
        "collector-without-containers",
        dijob(collector={"template": {"spec": {"containers": []}}}),
        "spec.collector.template.spec.containers in body should have at least 1 items",
        "spec.collector.template.spec.containers: Expected `array` of length >= 1",
    ),
    _condition(
        "volume-of-job-and-template",
        dijob(
            coordinator={"template": template(volumes=[{"name": "v", "emptyDir": {}}])},
            volumes=[{"name": "v", "emptyDir": {}}],
        ),
        "spec.volumes[0].name: 'v' is also a volume of spec.coordinator.template; rename one",
    ),
    _condition(
        "two-ports-of-one-name",
        _ports({"containerPort": 80, "name": "web"}, {"containerPort": 81, "name": "web"}),
        "spec.containers[0].ports[1].name: Duplicate value",
    ),
    _condition(
        "two-ports-on-one-host-port",
        _ports({"containerPort": 80, "hostPort": 80}, {"containerPort": 81, "hostPort": 80}),
        "hostPort: Duplicate value",
    ),
    _condition(
        "image-missing",
        coordinated(template(without(container(), "image"))),
        "spec.containers[0].image: Required value",
    ),
    _condition(
        "a-thousandth-of-a-gpu",
        coordinated(template(container(resources={"limits": {"nvidia.com/gpu": "1m"}}))),
        'spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: "1m": must be an integer',
    ),
    _condition(
        "quantity-is-a-word",
        coordinated(template(container(resources={"limits": {"cpu": "plenty"}}))),
        "quantities must match the regular expression",
    ),
    _condition(
        "command-is-a-string",
        coordinated(template(container(command="python main.py"))),
        "containers.command of type []string",
    ),
    _condition(
        "mount-of-no-volume",
        coordinated(template(container(volumeMounts=[{"name": "v", "mountPath": "/v"}]))),
        'spec.containers[0].volumeMounts[0].name: Not found: "v"',
    ),
    _condition(
        "unknown-pod-restart-policy",
        coordinated(template(restartPolicy="Sometimes")),
        'spec.restartPolicy: Unsupported value: "Sometimes"',
    ),
    _condition("unknown-priority-class", dijob(priorityClassName="huge"), "no PriorityClass with name huge was found"),
    _condition(
        "template-label-value-is-invalid",
        coordinated(template(metadata={"labels": {"team": "the a team"}})),
        'metadata.labels: Invalid value: "the a team"',
    ),
    _condition(
        "template-label-key-with-a-next-line",
        coordinated(template(metadata={"labels": {f"te{NEXT_LINE}am": "a"}})),
        "name part must consist of alphanumeric characters",
    ),
    _condition(
        "template-finalizer-is-garbage",
        coordinated(template(metadata={"finalizers": ["no such thing!"]})),
        'metadata.finalizers: Invalid value: "no such thing!"',
    ),
    _condition(
        "container-name-with-a-next-line",
        coordinated(template(container(f"di{NEXT_LINE}container"))),
        "spec.containers[0].name: Invalid value",
    ),
)


def _counted(**fields: Any) -> Manifest:
    return replicated({"trainer": replica(**fields)})


def _scaled(to: int, **fields: Any) -> Manifest:
    return aitrainingjob(elasticReplicas=to, replicaSpecs={"trainer": replica(**fields)})


def _trainer(name: str = TRAINER, **fields: Any) -> Manifest:
    return replicated({"trainer": replica(container(name, **fields))})


_COLLECTOR = task("collector")


def _tasks(*tasks: Any, **spec: Any) -> Manifest:
    return ditask("job", *tasks, **spec)


_DITASK = (
    _rejected("both-shapes", ditask(coordinator={"template": template()}), SHAPE, f"spec.coordinator: {SHAPE}"),
    _rejected("no-shape", ditask() | {"spec": {"group": "a"}}, f"spec: Invalid value: {SHAPE}", f"spec: {SHAPE}"),
    _rejected(
        "shape-of-v1.0.0",
        ditask() | {"spec": {"template": template(), "minReplicas": 2, "engineFields": {"topology": "star"}}},
        "engineFields of DI-orchestrator v1.0.0 are not read: write a task with that template",
        "engineFields of DI-orchestrator v1.0.0 are not read: write a task with that template",
    ),
    _rejected(
        "no-tasks",
        ditask() | {"spec": {"tasks": []}},
        "spec.tasks in body should have at least 1 items",
        "spec.tasks: Expected `array` of length >= 1",
    ),
    _rejected(
        "33-tasks",
        _tasks(*(task("none", name=f"t{i}") for i in range(33))),
        "spec.tasks: Too many: 33: must have at most 32 items",
        "spec.tasks: Expected `array` of length <= 32",
    ),
    _rejected(
        "tasks-are-a-map",
        ditask(tasks={"collector": _COLLECTOR}),
        "spec.tasks: Invalid value",
        "spec.tasks: Expected `array`, got `object`",
    ),
    _rejected(
        "two-tasks-of-one-name",
        _tasks(task("none", name="a"), task("none", name="a")),
        'spec.tasks: Invalid value: ["a", "a"]: there is more than one task of this name',
        "spec.tasks[1].name: 'a': there is more than one task of this name",
    ),
    _rejected(
        "name-of-another-type",
        _tasks(_COLLECTOR, task("none", name="collector")),
        "there is more than one task of this name",
        "spec.tasks[1].name: 'collector': there is more than one task of this name",
    ),
    _rejected(
        "two-collectors",
        _tasks(_COLLECTOR, task("collector", name="other")),
        "spec.tasks: Invalid value: there is at most one task of each of the types",
        "spec.tasks[1].type: 'collector': there is at most one task of each of the types",
    ),
    _rejected(
        "unknown-type",
        _tasks(task("actor")),
        'spec.tasks[0].type: Unsupported value: "actor"',
        "spec.tasks[0].type: Invalid enum value 'actor'",
    ),
    _rejected(
        "without-a-name",
        _tasks(task("none")),
        "spec.tasks: Invalid value: a task of type none needs a name",
        "spec.tasks[0].name: a task of type none needs a name",
    ),
    _rejected(
        "without-type-and-name",
        _tasks(task()),
        "a task of type none needs a name",
        "spec.tasks[0].name: a task of type none needs a name",
    ),
    *(
        _rejected(
            f"name-{what}",
            _tasks(task("none", name=name)),
            "the name of a task consists of lower-case letters",
            "spec.tasks[0].name: the name of a task consists of lower-case letters",
        )
        for what, name in (("in-upper-case", "Actor"), ("with-an-underscore", "a_b"), ("ends-with-a-dash", "a-"))
    ),
    _rejected(
        "name-too-long",
        ditask("a" * 30, task("none", name="b" * 32)),
        "metadata.name: Invalid value: is too long: <job>-<task>-<index> may have 63 characters",
        "is too long: <job>-<task>-<index> may have 63 characters",
    ),
    _rejected(
        "name-too-long-for-the-highest-index",
        ditask("a" * 51, task("collector", maxReplicas=11)),
        "is too long: <job>-<task>-<index> may have 63 characters",
        "is too long: <job>-<task>-<index> may have 63 characters",
    ),
    _rejected("name-with-a-dot", ditask("v1.2"), "it becomes part of the names of services", "service name 'di-v1.2'"),
    _rejected(
        "no-replicas",
        _tasks(task("collector", replicas=0)),
        "spec.tasks[0].replicas in body should be greater than or equal to 1",
        "spec.tasks[0].replicas: Expected `int` >= 1",
    ),
    _rejected(
        "10001-replicas-in-all",
        _tasks(task("collector", replicas=6000), task("learner", maxReplicas=4001)),
        "the replicas of all roles add up to 10001",
        "spec.tasks: the replicas of all roles add up to 10001",
    ),
    _rejected(
        "min-replicas-above-replicas",
        _tasks(task("collector", minReplicas=2)),
        "minReplicas is more than replicas",
        "spec.tasks[0].minReplicas: minReplicas is more than replicas (1)",
    ),
    _rejected(
        "max-replicas-below-replicas",
        _tasks(task("collector", replicas=3, maxReplicas=2)),
        "maxReplicas is less than replicas",
        "spec.tasks[0].maxReplicas: maxReplicas is less than replicas (3)",
    ),
    _rejected(
        "scaled-without-a-collector",
        _tasks(task("learner"), replicas=2),
        "spec.scaledTask: Invalid value: replicas is about the task that scaledTask names",
        "spec.scaledTask: replicas is about the task that scaledTask names",
    ),
    _rejected(
        "scaled-task-is-no-task",
        _tasks(_COLLECTOR, scaledTask="actor"),
        "spec.scaledTask: Invalid value: replicas is about the task that scaledTask names",
        "spec.scaledTask: replicas is about the task that scaledTask names",
    ),
    _rejected(
        "scaled-below-the-minimum",
        _tasks(task("collector", replicas=3, minReplicas=2), replicas=1),
        "spec.replicas: Invalid value: is less than minReplicas of the scaled task",
        "spec.replicas: 1 is less than minReplicas of the scaled task (2)",
    ),
    _rejected(
        "scaled-above-the-maximum",
        _tasks(task("collector", maxReplicas=2), replicas=3),
        "spec.replicas: Invalid value: is more than maxReplicas of the scaled task",
        "spec.replicas: 3 is more than maxReplicas of the scaled task (2)",
    ),
    _rejected(
        "no-template",
        _tasks({"type": "collector"}),
        "spec.tasks[0].template: Required value",
        "spec.tasks[0]: Object missing required field `template`",
    ),
    _rejected(
        "empty-containers",
        _tasks({"type": "collector", "template": {"spec": {"containers": []}}}),
        "spec.tasks[0].template.spec.containers in body should have at least 1 items",
        "spec.tasks[0].template.spec.containers: Expected `array` of length >= 1",
    ),
    _rejected(
        "unknown-priority",
        ditask(priority="huge"),
        'spec.priority: Unsupported value: "huge"',
        "spec.priority: Invalid enum value 'huge'",
    ),
    _rejected(
        "backoff-limit-is-a-word",
        ditask(backoffLimit="many"),
        "spec.backoffLimit: Invalid value",
        "spec.backoffLimit: Expected `int`, got `str`",
    ),
    _condition(
        "addresses-of-all-replicas-too-long",
        _tasks(task("collector", replicas=3000)),
        "spec.tasks: the addresses of 3000 replicas in DI_NODES do not fit into one environment variable (128 KiB)",
    ),
    _condition(
        "volume-of-job-and-template",
        _tasks(
            {"type": "collector", "template": template(volumes=[{"name": "v", "emptyDir": {}}])},
            volumes=[{"name": "v", "emptyDir": {}}],
        ),
        "spec.volumes[0].name: 'v' is also a volume of spec.tasks[0].template; rename one",
    ),
)


_AITRAININGJOB = (
    _rejected(
        "no-replica-specs",
        aitrainingjob() | {"spec": {}},
        "spec.replicaSpecs: Required value",
        "missing required field `replicaSpecs`",
    ),
    _rejected(
        "empty-replica-specs",
        replicated({}),
        "spec.replicaSpecs in body should have at least 1 properties",
        "spec.replicaSpecs: Expected `object` of length >= 1",
    ),
    _rejected(
        "replica-specs-are-a-list",
        aitrainingjob(replicaSpecs=[replica()]),
        "spec.replicaSpecs: Invalid value",
        "spec.replicaSpecs: Expected `object`, got `array`",
    ),
    _rejected(
        "33-replica-specs",
        replicated({f"r{i}": replica() for i in range(33)}),
        "spec.replicaSpecs: Too many: 33: must have at most 32 items",
        "spec.replicaSpecs: Expected `object` of length <= 32",
    ),
    _rejected("replica-name-is-empty", replicated({"": replica()}), "a replica name consists of", "a replica name"),
    _rejected(
        "replica-name-with-an-underscore",
        replicated({"my_ps": replica()}),
        '["my_ps"]: a replica',
        "my_ps: a replica",
    ),
    _rejected(
        "replica-name-starts-with-a-digit",
        replicated({"1st": replica()}),
        '["1st"]: a replica name',
        "1st: a replica",
    ),
    _rejected(
        "replica-name-ends-with-a-dash", replicated({"ps-": replica()}), '["ps-"]: a replica name', "ps-: a replica"
    ),
    _rejected(
        "replica-name-with-a-next-line",
        replicated({f"a{NEXT_LINE}b": replica()}),
        "a replica name consists of",
        "a replica name consists of",
    ),
    _rejected(
        "replica-names-equal-in-lower-case",
        replicated({"PS": replica(), "ps": replica()}),
        "differ only in case",
        "spec.replicaSpecs.ps: differs from 'PS' only in case",
    ),
    _rejected(
        "replica-name-too-long",
        replicated({"a" * 60: replica()}),
        "<job>-<replica>-<index> may have 63 characters; shorten it or the name of",
        "63 are allowed",
    ),
    _rejected(
        "name-too-long-for-the-highest-index",
        replicated({"t": replica(replicas=101)}, "a" * 58),
        '<job>-<replica>-<index> may have 63 characters; shorten it or the name of ["t"]',
        "would have 64 characters, 63 are allowed",
    ),
    _rejected("job-name-starts-with-a-digit", aitrainingjob("1st"), "must start with a letter", "must start with"),
    _rejected("no-pods-at-all", _counted(replicas=0), "no replica has a pod", "no replica has a pod"),
    _rejected(
        "negative-replicas",
        _counted(replicas=-1),
        "spec.replicaSpecs.trainer.replicas in body should be greater than or equal to 0",
        "replicas: Expected `int` >= 0",
    ),
    _rejected(
        "100001-replicas",
        _counted(replicas=100_001),
        "spec.replicaSpecs.trainer.replicas in body should be less than or equal to 10000",
        "replicas: Expected `int` <= 10000",
    ),
    *(
        _rejected(
            f"10001-replicas-in-all-{how}",
            manifest,
            "the replicas of all roles add up to 10001, and a job may have 10000; lower replicas or maxReplicas",
            "spec.replicaSpecs: the replicas of all roles add up to 10001, and a job may have 10000; lower replicas or",
        )
        for how, manifest in {
            "as-written": replicated({"a": replica(replicas=5001), "b": replica(replicas=5000)}),
            "as-they-may-become": replicated(
                {"a": replica(maxReplicas=5001, edlPolicy="Auto"), "b": replica(replicas=5000)}
            ),
            "as-scaled": aitrainingjob(
                elasticReplicas=5001, replicaSpecs={"a": replica(edlPolicy="Manual"), "b": replica(replicas=5000)}
            ),
        }.items()
    ),
    _rejected("replicas-is-a-string", _counted(replicas="3"), "replicas: Invalid value", "Expected `int`, got `str`"),
    _rejected("one-and-a-half-replicas", _counted(replicas=1.5), "replicas: Invalid value", "Expected `int`"),
    _rejected(
        "min-replicas-above-replicas",
        _counted(replicas=2, minReplicas=3),
        "minReplicas: Invalid value: 3 is more than replicas (2)",
        "spec.replicaSpecs.trainer.minReplicas: 3 is more than replicas (2)",
    ),
    _rejected(
        "min-replicas-above-the-default",
        _counted(minReplicas=2),
        "minReplicas: Invalid value: 2 is more than replicas (1)",
        "spec.replicaSpecs.trainer.minReplicas: 2 is more than replicas (1)",
    ),
    _rejected(
        "max-replicas-below-replicas",
        _counted(replicas=2, maxReplicas=1),
        "maxReplicas: Invalid value: 1 is less than replicas (2)",
        "spec.replicaSpecs.trainer.maxReplicas: 1 is less than replicas (2)",
    ),
    _rejected(
        "scaled-below-the-minimum",
        _scaled(1, replicas=2, minReplicas=2, edlPolicy="Manual"),
        "spec.elasticReplicas: Invalid value: 1 is less than minReplicas of trainer (2)",
        "spec.elasticReplicas: 1 is less than minReplicas of trainer (2)",
    ),
    _rejected(
        "scaled-above-the-maximum",
        _scaled(5, replicas=2, maxReplicas=4, edlPolicy="Auto"),
        "spec.elasticReplicas: Invalid value: 5 is more than maxReplicas of trainer (4)",
        "spec.elasticReplicas: 5 is more than maxReplicas of trainer (4)",
    ),
    _rejected(
        "scaled-without-an-elastic-replica",
        _scaled(2, edlPolicy="Never"),
        "spec.elasticReplicas: Invalid value: scales the one replica whose edlPolicy is Auto or Manual, and there are",
        "spec.elasticReplicas: scales the one replica whose edlPolicy is Auto or Manual, and there are 0",
    ),
    _rejected(
        "scaled-with-two-elastic-replicas",
        aitrainingjob(
            elasticReplicas=2, replicaSpecs={"a": replica(edlPolicy="Auto"), "b": replica(edlPolicy="Manual")}
        ),
        "and there are 2: set the replicas of each by itself",
        "and there are 2: set the replicas of each by itself",
    ),
    _rejected(
        "scaled-to-nothing",
        _scaled(0, edlPolicy="Manual"),
        "spec.elasticReplicas in body should be greater than or equal to 1",
        "spec.elasticReplicas: Expected `int` >= 1",
    ),
    _rejected(
        "name-too-long-for-the-most-replicas",
        replicated({"t": replica(replicas=2, maxReplicas=101, edlPolicy="Auto")}, "a" * 58),
        '<job>-<replica>-<index> may have 63 characters; shorten it or the name of ["t"]',
        "would have 64 characters, 63 are allowed",
    ),
    _rejected(
        "unknown-restart-policy",
        _counted(restartPolicy="onfailure"),
        'restartPolicy: Unsupported value: "onfailure"',
        "restartPolicy: Invalid enum value 'onfailure'",
    ),
    _rejected(
        "unknown-restart-scope",
        _counted(restartScope="Job"),
        'restartScope: Unsupported value: "Job"',
        "restartScope: Invalid enum value 'Job'",
    ),
    _rejected(
        "unknown-end-policy",
        aitrainingjob(completePolicy="Rank1"),
        'spec.completePolicy: Unsupported value: "Rank1"',
        "spec.completePolicy: Invalid enum value 'Rank1'",
    ),
    _rejected(
        "negative-restart-limit",
        _counted(restartLimit=-1),
        "restartLimit in body should be greater than or equal to 0",
        "restartLimit: Expected `int` >= 0",
    ),
    _rejected(
        "no-time-at-all",
        aitrainingjob(timeLimit=0),
        "spec.timeLimit in body should be greater than or equal to 1",
        "spec.timeLimit: Expected `int` >= 1",
    ),
    _rejected(
        "exit-code-without-quotes",
        aitrainingjob(restartingExitCode=137),
        "spec.restartingExitCode: Invalid value",
        "spec.restartingExitCode: Expected `str`, got `int`",
    ),
    _rejected(
        "exit-code-is-a-word",
        aitrainingjob(restartingExitCode="137, sometimes"),
        "spec.restartingExitCode in body should match",
        "spec.restartingExitCode: 'sometimes' is no exit code; write numbers (137), ranges (128-143) or signals",
    ),
    _rejected(
        "exit-code-above-255",
        aitrainingjob(restartingExitCode="256"),
        "spec.restartingExitCode in body should match",
        "spec.restartingExitCode: '256': an exit code is at most 255",
    ),
    _rejected(
        "exit-codes-without-a-comma",
        aitrainingjob(restartingExitCode="137 128"),
        "spec.restartingExitCode in body should match",
        "spec.restartingExitCode: '137 128' is no exit code",
    ),
    _rejected(
        "exit-code-is-negative",
        aitrainingjob(restartingExitCode="-9"),
        "spec.restartingExitCode in body should match",
        "spec.restartingExitCode: '-9' is no exit code",
    ),
    _condition(
        "exit-code-range-upside-down",
        aitrainingjob(restartingExitCode="143-128"),
        "spec.restartingExitCode: '143-128' is an empty range; write 128-143",
    ),
    _condition(
        "exit-code-is-no-signal",
        aitrainingjob(restartingExitCode="SIGNOTHING"),
        "spec.restartingExitCode: 'SIGNOTHING' is no exit code",
    ),
    _rejected(
        "exit-codes-without-end",
        aitrainingjob(restartingExitCode="137," * 200),
        "spec.restartingExitCode: Too long: may not be more than 512 bytes",
        "spec.restartingExitCode: Expected `str` of length <= 512",
    ),
    _rejected(
        "unknown-clean-pod-policy",
        aitrainingjob(cleanPodPolicy="Sometimes"),
        'spec.cleanPodPolicy: Unsupported value: "Sometimes"',
        "spec.cleanPodPolicy: Invalid enum value 'Sometimes'",
    ),
    _rejected(
        "unknown-fail-policy",
        aitrainingjob(failPolicy="Sometimes"),
        'spec.failPolicy: Unsupported value: "Sometimes"',
        "spec.failPolicy: Invalid enum value 'Sometimes'",
    ),
    *(
        _rejected(
            f"unknown-{field}-of-a-replica",
            _counted(**{field: "Sometimes"}),
            f'spec.replicaSpecs.trainer.{field}: Unsupported value: "Sometimes"',
            f"{field}: Invalid enum value 'Sometimes'",
        )
        for field in ("completePolicy", "failPolicy", "edlPolicy")
    ),
    _rejected(
        "min-replicas-above-max-replicas",
        _counted(replicas=2, minReplicas=3, maxReplicas=2),
        "minReplicas: Invalid value: 3 is more than replicas (2)",
        "spec.replicaSpecs.trainer.minReplicas: 3 is more than replicas (2)",
    ),
    _rejected(
        "manager-without-a-domain",
        aitrainingjob(managedBy="somebody"),
        "spec.managedBy in body should match",
    ),
    _rejected(
        "replica-template-is-a-list",
        replicated({"trainer": {"template": [template()]}}),
        "template: Invalid value",
        "template: Expected `object`, got `array`",
    ),
    _rejected(
        "env-without-a-name",
        _trainer(env=[{"value": "1"}]),
        "containers[0].env[0].name: Required value",
        "spec.replicaSpecs.trainer.template.spec.containers[0].env[0]: Object missing required field `name`",
    ),
    _rejected(
        "priority-is-no-label-value",
        aitrainingjob(priority="very high"),
        "spec.priority in body should match",
        "spec.priority: Expected `str` matching regex",
    ),
    _condition(
        "container-name-in-upper-case",
        _trainer("AITJ-trainer"),
        'spec.containers[0].name: Invalid value: "AITJ-trainer"',
    ),
    _condition(
        "port-name-too-long",
        _trainer(ports=[{"containerPort": 80, "name": "aitj-much-too-long"}]),
        "spec.containers[0].ports[0].name: Invalid value",
    ),
    _condition(
        "env-with-value-and-source",
        _trainer(env=[{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        # The operator's own variables stand before it.
        "].valueFrom: Invalid value",
    ),
    _condition(
        "replica-annotation-key-is-invalid",
        _counted(metadata={"annotations": {"a b": "c"}}),
        'metadata.annotations: Invalid value: "a b"',
    ),
)


_NERVEXJOB = (
    _rejected("name-starts-with-a-digit", nervexjob("1st"), "must start with a letter", "must start with a letter"),
    _rejected(
        "name-too-long-for-collectors",
        nervexjob("a" * 48, **{role: {"template": template(container(role))} for role in ("collector", "learner")}),
        '-collector-xxxxx" would have 64 characters, 63 are allowed; shorten the name by 1',
        "-collector-xxxxx' would have 64 characters",
    ),
    _rejected(
        "name-too-long-for-learners",
        nervexjob("a" * 50, learner={"template": template(container("learner"))}),
        '-learner-xxxxx" would have 64 characters, 63 are allowed; shorten the name by 1',
        "-learner-xxxxx' would have 64 characters",
    ),
)


def _roles(**changes: Any) -> Manifest:
    """The three roles of MXTrain, with these in their place; None takes one away."""
    roles = {role: mx_replica() for role in ("Scheduler", "Server", "Worker")} | changes
    return mxjob(mxReplicaSpecs={role: given for role, given in roles.items() if given is not None})


_MXJOB = (
    _rejected(
        "no-job-mode",
        mxjob() | {"spec": without(mxjob()["spec"], "jobMode")},
        "spec.jobMode: Required value",
        "missing required field `jobMode`",
    ),
    _rejected(
        "unknown-job-mode",
        mxjob(jobMode="Train"),
        'spec.jobMode: Unsupported value: "Train"',
        "spec.jobMode: Invalid enum value 'Train'",
    ),
    _rejected(
        "no-roles",
        mxjob(mxReplicaSpecs={}),
        "spec.mxReplicaSpecs in body should have at least 1 properties",
        "spec.mxReplicaSpecs: Expected `object` of length >= 1",
    ),
    _rejected(
        "two-schedulers",
        _roles(Scheduler=mx_replica(replicas=2)),
        "spec.mxReplicaSpecs: Invalid value: there is one Scheduler or TunerTracker in a job",
        "spec.mxReplicaSpecs.Scheduler.replicas: there is one Scheduler in a job, not 2",
    ),
    _rejected(
        "10001-replicas-in-all",
        _roles(Server=mx_replica(replicas=5000), Worker=mx_replica(replicas=5000)),
        "the replicas of all roles add up to 10001, and a job may have 10000; lower replicas",
        "spec.mxReplicaSpecs: the replicas of all roles add up to 10001, and a job may have 10000; lower replicas",
    ),
    _rejected(
        "no-replicas",
        _roles(Server=mx_replica(replicas=0)),
        "spec.mxReplicaSpecs.Server.replicas in body should be greater than or equal to 1",
        "replicas: Expected `int` >= 1",
    ),
    _rejected(
        "no-scheduler",
        _roles(Scheduler=None),
        "MXTrain needs a Scheduler, a Server and a Worker, or Workers alone",
        "spec.mxReplicaSpecs.Scheduler: MXTrain needs a Scheduler",
    ),
    _rejected(
        "servers-alone",
        _roles(Scheduler=None, Worker=None),
        "MXTrain needs a Scheduler, a Server and a Worker, or Workers alone",
        "spec.mxReplicaSpecs.Worker: MXTrain needs a Worker",
    ),
    _rejected(
        "roles-of-the-other-mode",
        mxjob(jobMode="MXTune"),
        "MXTune has no role",
        "spec.mxReplicaSpecs.Scheduler: MXTune has no role Scheduler",
    ),
    _rejected(
        "unknown-role",
        _roles(Master=mx_replica()),
        'MXTrain has no role ["Master"]',
        "spec.mxReplicaSpecs.Master: there is no such role",
    ),
    _rejected(
        "one-role-twice",
        _roles(worker=mx_replica(), Server=None),
        "differ only in case; rename all but one",
        "spec.mxReplicaSpecs.worker: differs from 'Worker' only in case",
    ),
    _condition(
        "no-mxnet-container",
        _roles(Worker=mx_replica(container("main"))),
        "spec.mxReplicaSpecs.Worker.template.spec.containers: none of main is called 'mxnet'",
    ),
    _rejected(
        "empty-containers",
        _roles(Worker={"template": {"spec": {"containers": []}}}),
        "spec.mxReplicaSpecs.Worker.template.spec.containers in body should have at least 1 items",
        "containers: Expected `array` of length >= 1",
    ),
    _condition(
        "server-that-joins-again",
        _roles(Server=mx_replica(restartScope="Pod")),
        "spec.mxReplicaSpecs.Server.restartScope: a Server cannot join again by itself",
    ),
    _rejected(
        "unknown-restart-policy",
        _roles(Worker=mx_replica(restartPolicy="Sometimes")),
        'restartPolicy: Unsupported value: "Sometimes"',
        "restartPolicy: Invalid enum value 'Sometimes'",
    ),
    _rejected(
        "unknown-clean-pod-policy",
        mxjob(runPolicy={"cleanPodPolicy": "Sometimes"}),
        'spec.runPolicy.cleanPodPolicy: Unsupported value: "Sometimes"',
        "spec.runPolicy.cleanPodPolicy: Invalid enum value 'Sometimes'",
    ),
    _rejected(
        "unknown-success-policy",
        mxjob(successPolicy="Anybody"),
        'spec.successPolicy: Unsupported value: "Anybody"',
        "spec.successPolicy: Invalid enum value 'Anybody'",
    ),
    _rejected(
        "negative-backoff-limit",
        mxjob(runPolicy={"backoffLimit": -1}),
        "spec.runPolicy.backoffLimit in body should be greater than or equal to 0",
        "spec.runPolicy.backoffLimit: Expected `int` >= 0",
    ),
    _condition(
        "two-backoff-limits",
        mxjob(backoffLimit=1, runPolicy={"backoffLimit": 2}),
        "spec.backoffLimit: spec.runPolicy.backoffLimit says something else; leave one of them out",
    ),
    _rejected(
        "no-time-at-all",
        mxjob(activeDeadlineSeconds=0),
        "spec.activeDeadlineSeconds in body should be greater than or equal to 1",
        "spec.activeDeadlineSeconds: Expected `int` >= 1",
    ),
    _rejected("name-starts-with-a-digit", mxjob("1st"), "must start with a letter", "must start with a letter"),
    _rejected(
        "name-too-long",
        mxjob("a" * 52),
        'is too long: <job>-<role>-<index> may have 63 characters, too few for ["Scheduler"]',
        "-scheduler-0' would have 64 characters, 63 are allowed",
    ),
)


_CREW = (crew("SCHEDULER"), crew("SERVER", 2), crew("WORKER", 3))


def _crew(*specs: Manifest, **spec: Any) -> Manifest:
    """A distributed MxJob of these entries."""
    return mlkubejob(**{"jobMode": "dist", "replicaSpecs": list(specs), **spec})


_MLKUBE = (
    _rejected(
        "no-mode",
        mlkubejob() | {"spec": without(mlkubejob()["spec"], "jobMode")},
        "spec.jobMode: Required value",
        "missing required field `jobMode`",
    ),
    _rejected(
        "unknown-mode",
        mlkubejob(jobMode="cloud"),
        'spec.jobMode: Unsupported value: "cloud"',
        "spec.jobMode: Invalid enum value",
    ),
    _rejected(
        "no-replicas",
        mlkubejob(replicaSpecs=[]),
        "spec.replicaSpecs in body should have at least 1 items",
        "length >= 1",
    ),
    _rejected(
        "as-the-first-api-had-them",
        without(mlkubejob(), "spec") | {"spec": {"jobMode": "local", "replica_specs": []}},
        "spec.replicaSpecs: Required value",
    ),
    _rejected(
        "unknown-type",
        mlkubejob(replicaSpecs=[crew("MASTER")]),
        'spec.replicaSpecs[0].mxReplicaType: Unsupported value: "MASTER"',
        "spec.replicaSpecs[0].mxReplicaType: Invalid enum value",
    ),
    _rejected(
        "no-template",
        mlkubejob(replicaSpecs=[{"mxReplicaType": "WORKER"}]),
        "spec.replicaSpecs[0].template: Required value",
        "spec.replicaSpecs[0]: Object missing required field `template`",
    ),
    _rejected(
        "two-schedulers",
        _crew(crew("SCHEDULER", 2), *_CREW[1:]),
        "spec.replicaSpecs: Invalid value",
        "spec.replicaSpecs[0].replicas: there is one SCHEDULER, not 2; set it to 1",
    ),
    *(
        _rejected(
            f"no-{spec['mxReplicaType'].lower()}",
            _crew(*(other for other in _CREW if other is not spec)),
            "jobMode dist has one entry each of SCHEDULER, SERVER and WORKER",
            f"spec.replicaSpecs: jobMode dist needs a {spec['mxReplicaType']}",
        )
        for spec in _CREW
    ),
    _rejected(
        "a-type-twice",
        _crew(_CREW[0], _CREW[2], _CREW[2]),
        "jobMode dist has one entry each of SCHEDULER, SERVER and WORKER",
        "spec.replicaSpecs[2].mxReplicaType: there is another WORKER",
    ),
    _rejected(
        "a-local-server",
        _crew(crew("SERVER"), crew("WORKER"), jobMode="local"),
        "jobMode local has one WORKER with replicas 1 and nothing else",
        "spec.replicaSpecs[0].mxReplicaType: jobMode local has one WORKER and no SERVER",
    ),
    _rejected(
        "two-local-workers",
        mlkubejob(replicaSpecs=[crew("WORKER", 2)]),
        "jobMode local has one WORKER with replicas 1 and nothing else",
        "spec.replicaSpecs[0].replicas: jobMode local has one WORKER, not 2",
    ),
    _rejected(
        "no-servers-at-all",
        _crew(_CREW[0], crew("SERVER", 0), _CREW[2]),
        "spec.replicaSpecs[1].replicas in body should be greater than or equal to 1",
        "spec.replicaSpecs[1].replicas: Expected `int` >= 1",
    ),
    _rejected(
        "no-container-mxnet",
        _crew(_CREW[0], crew("SERVER", 2, container("ps")), _CREW[2]),
        'template.spec.containers of ["SERVER"]: none is called mxnet; rename the one that trains',
        "spec.replicaSpecs[1].template.spec.containers: none is called mxnet",
    ),
    _rejected(
        "always",
        mlkubejob(replicaSpecs=[crew("WORKER", restart="Always")]),
        'spec.replicaSpecs[0].template.spec.restartPolicy: Unsupported value: "Always"',
        "spec.replicaSpecs[0].template.spec.restartPolicy: 'Always': a batch Job takes OnFailure and Never alone",
    ),
    _rejected(
        "port-0",
        _crew(crew("SCHEDULER", PsRootPort=0), *_CREW[1:]),
        "spec.replicaSpecs[0].PsRootPort in body should be greater than or equal to 1",
        "spec.replicaSpecs[0].PsRootPort: Expected `int` >= 1",
    ),
    _rejected(
        "runtime-id-in-upper-case",
        mlkubejob(RuntimeId="1KKF"),
        "spec.RuntimeId in body should match",
        "spec.RuntimeId: Expected `str` matching regex",
    ),
    _rejected(
        "unknown-clean-pod-policy",
        mlkubejob(cleanPodPolicy="Some"),
        'spec.cleanPodPolicy: Unsupported value: "Some"',
        "spec.cleanPodPolicy: Invalid enum value",
    ),
    _rejected(
        "no-exit-code",
        mlkubejob(restartingExitCode="often"),
        "spec.restartingExitCode in body should match",
        "spec.restartingExitCode: 'often' is no exit code",
    ),
    _condition(
        "an-empty-range", mlkubejob(restartingExitCode="9-1"), "spec.restartingExitCode: '9-1' is an empty range"
    ),
    _rejected(
        "negative-ttl",
        mlkubejob(ttlSecondsAfterFinished=-1),
        "spec.ttlSecondsAfterFinished in body should be greater than or equal to 0",
        "spec.ttlSecondsAfterFinished: Expected `int` >= 0",
    ),
    _rejected(
        "name-starts-with-a-digit",
        _crew(*_CREW) | {"metadata": {"name": "1st"}},
        "must start with a letter",
        "must start with a letter",
    ),
    _rejected(
        "name-too-long",
        _crew(*_CREW) | {"metadata": {"name": "a" * 47}},
        "is too long: <job>-<type>-<runtime id>-<index> may have 63 characters",
        "would have 64 characters, 63 are allowed",
    ),
    _rejected(
        "local-name-too-long",
        mlkubejob("a" * 50),
        "is too long: <job>-<type>-<runtime id>-<index> may have 63 characters",
        "would have 64 characters, 63 are allowed",
    ),
    _rejected(
        "first-group-knows-the-same-rules",
        mlkubejob(group="mlkube.io", replicaSpecs=[crew("WORKER", 2)]),
        "jobMode local has one WORKER with replicas 1 and nothing else",
        "spec.replicaSpecs[0].replicas: jobMode local has one WORKER, not 2",
    ),
)


def _named(kind: str, rows: tuple[Row, ...]) -> tuple[Row, ...]:
    return tuple(row._replace(id=f"{kind}-{row.id}") for row in rows)


ROWS = (
    *_named("metadata", _METADATA),
    *_named("dijob", _DIJOB),
    *_named("ditask", _DITASK),
    *_named("nervexjob", _NERVEXJOB),
    *_named("aitrainingjob", _AITRAININGJOB),
    *_named("mxjob", _MXJOB),
    *_named("mlkube", _MLKUBE),
)
REJECTED_ROWS = tuple(row for row in ROWS if row.expected == "rejected")
ACCEPTED_ROWS = tuple(row for row in ROWS if row.expected == "condition")

VERSIONS = ("diengine.opendilab.org/v1alpha1", "diengine.opendilab.org/v2alpha1")
_OF_EITHER_VERSION = (
    "both-shapes",
    "no-tasks",
    "tasks-are-a-map",
    "two-tasks-of-one-name",
    "without-a-name",
    "backoff-limit-is-a-word",
    "name-too-long",
    "addresses-of-all-replicas-too-long",
)
OF_EITHER_VERSION = tuple(row for row in ROWS if row.id in [f"ditask-{name}" for name in _OF_EITHER_VERSION])
"""DIJobs with tasks that are refused alike under both of the served ``VERSIONS``."""
