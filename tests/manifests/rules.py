"""Every CEL rule of our definitions, and a job or an edit that breaks it.

A cluster evaluates the rules, local mode and the webhook call ``Kind.errors`` and ``Kind.refused_changes``. Both must
refuse each row, at the same field, with ``says`` in the sentence.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.manifests.bad import ROWS
from tests.manifests.build import Manifest, aitrainingjob, crew, dijob, ditask, mlkubejob, mxjob, nervexjob
from trainmaster.kinds import crd


class Rule(NamedTuple):
    """A rule of a definition. ``at`` is the field whose schema has the rule, ``field`` the one that an error names; an
    asterisk stands for a key of a map."""

    definition: str
    at: str
    field: str
    text: str


class Broken(NamedTuple):
    """``says`` is a part of the rule's own text, too: so the rule is found. Without ``old`` the job is created."""

    definition: str
    at: str
    says: str
    new: Manifest
    old: Manifest | None = None

    @property
    def id(self) -> str:
        return f"{self.definition.partition('.')[2]}-{self.at or 'object'}-{self.says[:30]}".replace(" ", "-")

    @property
    def rules(self) -> list[Rule]:
        return [r for r in RULES if (r.definition, r.at) == (self.definition, self.at) and self.says in r.text]


def _rules(definition: str, schema: Manifest, at: str = "") -> Iterator[Rule]:
    for rule in schema.get("x-kubernetes-validations", ()):
        field = f"{at}{rule.get('fieldPath', '')}".removeprefix(".")
        yield Rule(definition, at, field, f"{rule['message']}\n{rule.get('messageExpression', '')}")
    below = dict(schema.get("properties", {}))
    if isinstance(schema.get("additionalProperties"), dict):
        below["*"] = schema["additionalProperties"]
    for name, child in below.items():
        yield from _rules(definition, child, f"{at}.{name}" if at else name)
    if "items" in schema:
        yield from _rules(definition, schema["items"], f"{at}[*]")


# All versions of a definition have one schema.
RULES = tuple(
    rule
    for definition in crd.all_crds()
    for rule in _rules(definition["metadata"]["name"], definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
)

_BAD = {row.id: row.manifest for row in ROWS}

LETTER = "must start with a letter and consist of lower-case letters, digits and '-'"
SETTLED = "is settled when the job is created; create it anew to change who drives it"
BEGUN = (
    "jobMode, types, replicas, restartScope and PsRootPort of a job that has begun stay as they are, because "
    "ps-lite counts its members when it starts; delete the job and create it anew"
)
MANAGER: Manifest = {"managedBy": "example.com/a"}


def edited(job: Manifest, **spec: Any) -> Manifest:
    return job | {"spec": job["spec"] | spec}


def _dijobs(definition: str, job: Manifest, name: str) -> Iterator[Broken]:
    yield Broken(definition, "", LETTER, job | {"metadata": {"name": "1st"}})
    yield Broken(definition, "", "63 are allowed; shorten the ", _BAD[name])
    yield Broken(definition, "spec", SETTLED, edited(job, **MANAGER), job)


def _aitrainingjobs() -> Iterator[Broken]:
    created = {
        ("", LETTER): "job-name-starts-with-a-digit",
        ("", "is too long"): "name-too-long-for-the-highest-index",
        ("spec", "the replicas of all roles add up to"): "10001-replicas-in-all-as-written",
        ("spec", "scales the one replica whose edlPolicy is Auto or Manual"): "scaled-with-two-elastic-replicas",
        ("spec", " is less than minReplicas of "): "scaled-below-the-minimum",
        ("spec", " is more than maxReplicas of "): "scaled-above-the-maximum",
        (
            "spec.replicaSpecs",
            "a replica name consists of letters, digits and '-' and starts with a letter",
        ): "replica-name-with-an-underscore",
        ("spec.replicaSpecs", " only in case; rename "): "replica-names-equal-in-lower-case",
        ("spec.replicaSpecs", "no replica has a pod; set replicas of at least one to 1 or more"): "no-pods-at-all",
        ("spec.replicaSpecs.*", " is more than replicas ("): "min-replicas-above-replicas",
        ("spec.replicaSpecs.*", " is less than replicas ("): "max-replicas-below-replicas",
    }
    definition = "aitrainingjobs.elasticdeeplearning.ai"
    for (at, says), row in created.items():
        yield Broken(definition, at, says, _BAD[f"aitrainingjob-{row}"])
    yield Broken(definition, "spec", SETTLED, aitrainingjob(**MANAGER), aitrainingjob())


def _mxjobs() -> Iterator[Broken]:
    created = {
        ("", LETTER): "name-starts-with-a-digit",
        ("", "is too long"): "name-too-long",
        ("spec", "the replicas of all roles add up to"): "10001-replicas-in-all",
        ("spec", " has no role "): "roles-of-the-other-mode",
        ("spec.mxReplicaSpecs", " only in case; rename "): "one-role-twice",
        ("spec.mxReplicaSpecs", "MXTrain needs a Scheduler"): "no-scheduler",
        ("spec.mxReplicaSpecs", "there is one Scheduler"): "two-schedulers",
    }
    definition = "mxjobs.kubeflow.org"
    for (at, says), row in created.items():
        yield Broken(definition, at, says, _BAD[f"mxjob-{row}"])
    # An API server fills in the run policy of every MXJob.
    yield Broken(definition, "spec.runPolicy", SETTLED, mxjob(runPolicy=MANAGER), mxjob(runPolicy={}))


def _mlkube(group: str) -> Iterator[Broken]:
    created = {
        ("", LETTER): "name-starts-with-a-digit",
        ("", "is too long"): "name-too-long",
        ("spec", "jobMode local has one WORKER"): "a-local-server",
        ("spec", "jobMode dist "): "no-server",
        ("spec.replicaSpecs", "there is one SCHEDULER"): "two-schedulers",
        ("spec.replicaSpecs", "none is called mxnet; rename the one that trains"): "no-container-mxnet",
    }
    definition = f"mxjobs.{group}"
    for (at, says), row in created.items():
        yield Broken(definition, at, says, _BAD[f"mlkube-{row}"] | {"apiVersion": f"{group}/v1beta1"})
    job = mlkubejob(group=group)
    yield Broken(definition, "spec", SETTLED, edited(job, **MANAGER), job)
    crews = [crew("SCHEDULER"), crew("SERVER", 2), crew("WORKER", 2)]
    begun = mlkubejob(group=group, jobMode="dist", replicaSpecs=crews) | {"status": {"runtimeId": "1kkf"}}
    yield Broken(definition, "", BEGUN, edited(begun, replicaSpecs=[*crews[:2], crew("WORKER", 3)]), begun)


def _ditasks() -> Iterator[Broken]:
    created = {
        ("", "is too long: <job>-<task>-<index>"): "name-too-long",
        ("spec", "a DIJob has a coordinator (v1alpha1) or tasks (v2alpha1), and not both"): "both-shapes",
        ("spec", "a task of type none needs a name"): "without-a-name",
        ("spec", "the name of a task consists of lower-case letters"): "name-with-an-underscore",
        ("spec", "there is more than one task of this name"): "two-tasks-of-one-name",
        ("spec", "there is at most one task of each of the types"): "two-collectors",
        ("spec", "minReplicas is more than replicas"): "min-replicas-above-replicas",
        ("spec", "maxReplicas is less than replicas"): "max-replicas-below-replicas",
        ("spec", "replicas is about the task that scaledTask names"): "scaled-without-a-collector",
        ("spec", "is less than minReplicas of the scaled task"): "scaled-below-the-minimum",
        ("spec", "is more than maxReplicas of the scaled task"): "scaled-above-the-maximum",
        ("spec", "the replicas of all roles add up to"): "10001-replicas-in-all",
    }
    definition = "dijobs.diengine.opendilab.org"
    for (at, says), row in created.items():
        yield Broken(definition, at, says, _BAD[f"ditask-{row}"])
    old = dijob() | {"apiVersion": "diengine.opendilab.org/v2alpha1"}
    yield Broken(definition, "spec", "a job keeps its form", ditask(coordinator=None), old)


BROKEN = (
    *_dijobs("dijobs.diengine.opendilab.org", dijob(), "metadata-name-too-long"),
    *_dijobs("nervexjobs.nervex.sensetime.com", nervexjob(), "nervexjob-name-too-long-for-learners"),
    *_ditasks(),
    *_aitrainingjobs(),
    *_mxjobs(),
    *_mlkube("mxnet.mlkube.io"),
    *_mlkube("mlkube.io"),
)
