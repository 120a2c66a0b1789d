"""What a kind is: a plug-in that turns one job and what it owns into a Plan.

A kind implements ``errors``, ``decide`` and ``action_event``. What is the same for all of them is here:
decoding, rejecting a spec that cannot be run, saying that a pod could not be created, and the limits of
one pass. ``tests/laws`` holds every registered kind to the laws of docs/decisions/0001.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from trainmaster.core import condition
from trainmaster.core.condition import Conditions
from trainmaster.core.definition import outdated
from trainmaster.core.errors import ApiError, BadSpec, located
from trainmaster.core.ids import Key, Resource
from trainmaster.core.job_size import size_error
from trainmaster.core.nesting import TOO_DEEP
from trainmaster.core.observed import Observed, SlotLabels
from trainmaster.core.plan import Create, Delete, Event, Patch, Plan, normal, warning
from trainmaster.core.template import Owner
from trainmaster.core.view import JobView, PodView
from trainmaster.core.wire import ObjectMeta, Wire
from trainmaster.kinds.admission_hints import Custom
from trainmaster.kinds.adoption import Candidates, Predecessor, Unowned
from trainmaster.lifecycle import creation, node, reason
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.completion import Result
from trainmaster.lifecycle.decide import Cause, Extra, Removal
from trainmaster.lifecycle.facts import Facts, replica_pods
from trainmaster.lifecycle.facts import Rules as FaultRules
from trainmaster.lifecycle.model import JobModel
from trainmaster.lifecycle.port import PortError, PortRules
from trainmaster.lifecycle.queue import Queue, queue_of
from trainmaster.lifecycle.restart import FailedPod
from trainmaster.lifecycle.summary import message_of
from trainmaster.settings import JobSettings

Settings = JobSettings
"""What a kind is built with."""


class ActionWords(msgspec.Struct, frozen=True, kw_only=True):
    """Reasons and messages of the Events for children, as the clients of a kind know them."""

    success_reason: str = "Successful{Verb}{kind}"
    success: str = "{Verb}d {noun}: {names}"
    failure_reason: str = "Failed{Verb}{kind}"
    failure: str = "Error {verbing} {noun} {names}: {error}"


class Related(NamedTuple):
    """One object that all jobs of a kind are planned with, and that none of them owns."""

    resource: Resource
    key: Key


class Job(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def status(self) -> Any: ...


class Failure(msgspec.Struct, frozen=True):
    """An action that the API server refused for good: trying again helps only after something changed."""

    action: Create | Delete | Patch
    error: str
    cause: ApiError | None = None
    """Set if the next try may succeed without a change."""


J = TypeVar("J", bound=Job)


class _Shell(Wire, frozen=True):
    """A job whose spec is of no interest or cannot be read."""

    metadata: ObjectMeta
    status: Any = None


_SHELL = msgspec.json.Decoder(_Shell)


class _SpecFields(Wire, frozen=True):
    spec: dict[str, msgspec.Raw] = {}


_SPEC_FIELDS = msgspec.json.Decoder(_SpecFields)


class _PhasePart(Wire, frozen=True):
    phase: str = ""


class _Phase(Wire, frozen=True):
    status: _PhasePart = _PhasePart()


_PHASE = msgspec.json.Decoder(_Phase)


class _ConditionsPart(Wire, frozen=True):
    conditions: condition.Conditions | None = ()


class _Conditions(Wire, frozen=True):
    status: _ConditionsPart = _ConditionsPart()


_CONDITIONS = msgspec.json.Decoder(_Conditions)


class _ManagedPart(Wire, frozen=True):
    managed_by: str | None = None


class _ManagedSpec(_ManagedPart, frozen=True):
    run_policy: _ManagedPart | None = None
    """Where Kubeflow's kinds have it."""


class _Managed(Wire, frozen=True):
    spec: _ManagedSpec | None = None


_MANAGED = msgspec.json.Decoder(_Managed)

MANAGED_BY_CHANGED = "is settled when the job is created; create it anew to change who drives it"
SHAPE_CHANGED = "a job keeps its form, because its fields decide which kind of job it is; delete it and create it anew"


class Kind(ABC, Generic[J]):
    """One plug-in. Everything here is pure: no clock, no I/O, no logging."""

    resource: ClassVar[Resource]
    slots: ClassVar[SlotLabels]
    component: ClassVar[str]
    """The source that its Events name."""
    job_type: ClassVar[type[Any]]
    status_type: ClassVar[type[Any]]
    initial_phase: ClassVar[str]
    """The phase of a job that was seen and has not started."""
    phases: ClassVar[Collection[str]]
    """All phases that its jobs can have."""
    ended: ClassVar[frozenset[str]]
    """Phases that are never left."""
    custom: ClassVar[Custom] = Custom()
    """What admission fills in, and warns of."""
    action_words: ClassVar[ActionWords] = ActionWords()
    blocks_owner_deletion: ClassVar[bool] = True
    """Whether a job that is deleted in the foreground waits for its children, as with the ancestor."""
    shape: ClassVar[frozenset[str]] = frozenset()
    """Fields of the spec that only jobs of this kind have, where several kinds share a resource."""
    looks_at_nodes: ClassVar[bool] = False
    """Whether it wants ``Observed.nodes``."""
    looks_at_readiness: ClassVar[bool] = False
    """Whether its jobs are planned again when a pod becomes ready, or is ready no more."""
    predecessor: ClassVar[Predecessor | None] = None
    """The operator whose children its jobs adopt."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._decoder = msgspec.json.Decoder(self.job_type)

    @property
    def name(self) -> str:
        """What logs, metrics and options call it. Two kinds that are spelt alike add their group."""
        return self.resource.kind.lower()

    @property
    def framework(self) -> str:
        """What the metrics of the training-operator call it."""
        return self.name

    # --- what a kind implements ---

    @abstractmethod
    def errors(self, job: J) -> list[str]:
        """All that must be changed before this job can run, each as ``path: what is wrong and what to do``."""

    def warnings(self, job: J) -> list[str]:
        """What is legal in a job without errors and surely not meant, each as in ``errors``. For admission."""
        return []

    def edit_errors(self, old: J, new: J) -> list[str]:
        """Changes of a stored job that are refused although the new job could run, each as in ``errors``."""
        return []

    @abstractmethod
    def decide(self, job: J, observed: Observed, now: datetime) -> Plan:
        """The next step for a valid job."""

    def action_event(self, verb: str, resource: Resource, names: Sequence[str], error: str = "") -> Event:
        """The Event for children that were created or deleted, or could not be."""
        words = self.action_words
        values = {
            "verb": verb,
            "verbing": f"{verb[:-1]}ing",
            "Verb": verb.capitalize(),
            "kind": resource.kind,
            "noun": resource.kind.lower(),
            "names": named(names),
        }
        if error:
            return warning(words.failure_reason.format(**values), words.failure.format(**values, error=error))
        return normal(words.success_reason.format(**values), words.success.format(**values))

    @property
    def related(self) -> Related | None:
        """What ``Observed.related`` has to be; None for a kind that needs nothing but its own."""
        return None

    @property
    def children(self) -> tuple[Resource, ...]:
        """What its jobs own besides pods and services: ``Observed.children`` has them."""
        return ()

    def has_ended(self, status: Any) -> bool:
        """By the stored status, also one of another operator: such a job never runs again."""
        return status.phase in self.ended

    def has_result(self, status: Any) -> bool:
        """Its spec decides nothing any more: a bad edit must not stop the clean-up."""
        return self.has_ended(status)

    # --- what all kinds share ---

    def plan(self, view: JobView, observed: Observed, now: datetime) -> Plan:
        """The next step for a job as the store holds it. Times on the wire have whole seconds."""
        now = now.replace(microsecond=0)
        if view.deleting:
            return Plan()  # its children carry an owner reference: the garbage collector removes them
        if self.is_foreign(view):
            return Plan()
        try:
            job = self.decode(view)
            return self._stored(job, self.decide(job, observed, now), now).bounded()
        except BadSpec as bad:
            return self._reject(view, bad, now)
        except RecursionError:  # what a decoder could still read may be too deep for code that copies it
            return self._reject(view, BadSpec(TOO_DEEP), now)

    def unplannable(self, view: JobView, error: Exception, now: datetime) -> Plan:
        """The plan for a job at which ``plan`` fails: only the status, which says so."""
        what = f"object: it cannot be planned, by a defect in trainmaster: {type(error).__name__}: {error}"[:1000]
        return self._reject(view, BadSpec(what), now.replace(microsecond=0))

    @property
    def manager(self) -> str:
        """What ``spec.managedBy`` calls us; a job that says nothing is ours, too."""
        return f"{self.resource.group}/trainmaster"

    def is_foreign(self, view: JobView) -> bool:
        """True when another controller manages the job: not even its status is written."""
        try:
            spec = _MANAGED.decode(view.raw).spec
        except (ValueError, RecursionError):
            return False  # not decodable: decode() reports it to the user
        if spec is None:
            return False
        named = {spec.managed_by, spec.run_policy and spec.run_policy.managed_by}
        return not named <= {None, "", self.manager}

    def decode(self, view: JobView) -> J:
        try:
            job: J = self._decoder.decode(view.raw)
        except ValueError as error:  # all of msgspec's errors, and UnicodeDecodeError
            raise BadSpec(view.error or located(error)) from error
        except RecursionError as error:
            raise BadSpec(TOO_DEEP) from error
        if self.has_result(job.status):
            return job
        if unusable := view.error or size_error(view.raw):
            raise BadSpec(unusable)
        if errors := self.errors(job):
            raise BadSpec(*errors)
        return job

    def refused_changes(self, old: JobView, new: JobView) -> list[str]:
        """What an edit must not change, each as in ``errors``. What cannot be decoded is not compared."""
        found: list[str] = []
        if self.shape and (fields := spec_fields(old.raw)) and self.shape.isdisjoint(fields):
            found.append(f"spec: {SHAPE_CHANGED}")
        with suppress(ValueError, RecursionError):
            found += _managed_by_errors(_MANAGED.decode(old.raw).spec, _MANAGED.decode(new.raw).spec)
        with suppress(ValueError, RecursionError):
            found += self.edit_errors(self._decoder.decode(old.raw), self._decoder.decode(new.raw))
        return found

    def status_of(self, view: JobView) -> tuple[ObjectMeta, dict[str, Any]]:
        """Metadata and stored status, whatever the spec looks like. A status that cannot be decoded has its phase."""
        try:
            shell = _SHELL.decode(view.raw)
        except ValueError:
            phase = self.phase_of(view)
            return ObjectMeta(view.key.name, view.key.namespace, view.uid), {"phase": phase} if phase else {}
        return shell.metadata, shell.status if isinstance(shell.status, dict) else {}

    def known_status(self, view: JobView) -> dict[str, Any]:
        """The stored status without fields that this version does not know: a patch must not mention them, so that
        they survive. A status of a foreign shape is returned whole, to be replaced."""
        stored = self.status_of(view)[1]
        try:
            known = msgspec.convert(stored, self.status_type)
        except msgspec.ValidationError:
            return stored
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(known))
        return found

    def phase_of(self, view: JobView) -> str:
        """The stored phase, if there is one that can be read."""
        try:
            return _PHASE.decode(view.raw).status.phase
        except (ValueError, RecursionError):
            return ""

    def conditions_of(self, view: JobView) -> condition.Conditions:
        """The stored conditions, if they can be read."""
        try:
            return _CONDITIONS.decode(view.raw).status.conditions or ()
        except (ValueError, RecursionError):
            return ()

    def conclude(self, view: JobView, plan: Plan, failures: Sequence[Failure], now: datetime) -> Plan:
        """The plan after the API server refused some of it: the job's status says what and why."""
        refused = [failure for failure in failures if isinstance(failure.action, Create)]
        if not refused:
            return plan  # failed deletes and patches are reported by an Event and retried
        errors = "; ".join(f"{f.action.resource.kind.lower()} {f.action.key}: {f.error}" for f in refused[:3])
        message = f"{errors}; trying again with back-off"
        stored = self._status(self.status_of(view)[1])
        status = self._status(plan.status) if plan.status is not None else stored
        old = condition.find(stored.conditions, condition.POD_CREATE_FAILED)
        if old is not None and old.status == "True" and _is_same(old.message, message):
            message = old.message
        conditions = condition.put_standard(
            status.conditions,
            condition.POD_CREATE_FAILED,
            True,
            reason.FAILED_CREATE,
            message,
            now.replace(microsecond=0),
        )
        changed = changed_status(stored, msgspec.structs.replace(status, conditions=conditions))
        return msgspec.structs.replace(plan, status=changed, lazy=0.0)

    def unstored(self, view: JobView, fields: Sequence[str], now: datetime) -> Plan:
        """The plan after the API server refused the status, because the definition lacks these fields: the status
        stays as it is stored, and a condition says why."""
        stored = self._status(self.status_of(view)[1])
        message = outdated(self.resource, fields)
        conditions = condition.put_standard(
            stored.conditions,
            condition.DEFINITION_OUTDATED,
            True,
            reason.UNKNOWN_FIELD,
            message,
            now.replace(microsecond=0),
        )
        # No sentence: the definition may lack the field.
        changed = _on_the_wire(stored, msgspec.structs.replace(stored, conditions=conditions))
        return Plan(status=changed, events=(warning(condition.DEFINITION_OUTDATED, message),))

    def _stored(self, job: J, plan: Plan, now: datetime) -> Plan:
        """Takes back that the status could not be stored. If the definition still lacks a field, this status is
        refused like the last one, and the condition stays."""
        if not condition.is_true(job.status.conditions, condition.DEFINITION_OUTDATED):
            return plan
        status = job.status if plan.status is None else self._status(plan.status)
        conditions = condition.put_standard(
            status.conditions, condition.DEFINITION_OUTDATED, False, reason.STORED, "", now
        )
        new = msgspec.structs.replace(status, conditions=conditions)
        return msgspec.structs.replace(plan, status=changed_status(job.status, new))

    def owner(self, job: J) -> Owner:
        meta = job.metadata
        return Owner(self.resource, meta.namespace, meta.name, meta.uid)

    def key(self, job: J) -> tuple[Key, str]:
        """Key and uid of a job."""
        meta = job.metadata
        return Key(meta.namespace, meta.name), meta.uid

    def changed(self, job: J, new: Wire) -> dict[str, Any] | None:
        """The new status as it goes onto the wire; None when nothing changed."""
        return changed_status(job.status, new)

    # What a kind may add to its description; most have nothing to say here.

    def replica_pods(self, job: J, model: JobModel, observed: Observed) -> Mapping[str, PodView]:
        """The pods that fill the slots of a job, by the name of the slot."""
        return replica_pods(model, observed)

    def clean_up(self, job: J, cause: Cause, result: Result) -> CleanPodPolicy | None:
        """The clean-up policy of a job that ends so, in the place of its own; None where its own stands."""
        return None

    def spared(self, job: J, facts: Facts) -> tuple[FailedPod, ...]:
        """The failed pods that the job goes on without."""
        return ()

    def other_children(self, job: J, facts: Facts, now: datetime) -> Extra:
        """Children beside pods and services."""
        return Extra()

    def queue(self, job: J) -> Queue | None:
        """The queue of Kueue that admits the pods."""
        return queue_of(job.metadata.labels)

    def replica_removal(self, model: JobModel, facts: Facts, policy: CleanPodPolicy | None) -> Removal:
        """How replicas are removed that are not pods: by a clean-up policy, or without one those that fill no slot."""
        return Removal()

    def noticed(self, job: J) -> dict[str, Any] | None:
        """The status of an ended job after an edit was observed; None for kinds that do not report it."""
        return None

    def unowned(self, job: J) -> Iterable[Unowned]:
        """Children that the predecessor creates for the job without an owner reference."""
        return ()

    def remembered(self, view: JobView, found: Candidates, now: datetime) -> dict[str, Any] | None:
        """The status that has to be stored before these children are adopted; None when nothing has to be."""
        return None

    @property
    def fault_rules(self) -> FaultRules:
        settings = self.settings
        return FaultRules(
            node.Rules(
                settings.node_fail_grace_period, settings.device_fail_grace_period, settings.bad_node_conditions
            ),
            creation.Times(
                duration=settings.creating_duration_period,
                restart=settings.creating_restart_period,
                can_fail=settings.enable_creating_failed,
            ),
        )

    @property
    def port_rules(self) -> PortRules:
        settings = self.settings
        return PortRules(
            settings.max_host_ports_per_job, settings.max_host_ports_per_namespace, settings.shared_network
        )

    def _reject(self, view: JobView, bad: BadSpec, now: datetime) -> Plan:
        meta, stored = self.status_of(view)
        old = self._status(stored)
        if self.has_ended(old):
            return Plan()
        message = "; ".join(bad.errors)
        new = msgspec.structs.replace(
            old,
            phase=old.phase or self.initial_phase,
            observed_generation=meta.generation,
            conditions=condition.put_standard(
                old.conditions, condition.ACCEPTED, False, reason.INVALID_SPEC, message, now
            ),
        )
        changed = changed_status(old, new)
        return Plan(status=changed, events=(warning(reason.INVALID_SPEC, message),) if changed is not None else ())

    def _status(self, stored: Any) -> Any:
        try:
            return msgspec.convert(stored, self.status_type)
        except msgspec.ValidationError:
            # A foreign shape is worth nothing but its phase: a job that has ended must never run again.
            phase = stored.get("phase")
            return self.status_type(phase=phase) if isinstance(phase, str) else self.status_type()


def spec_fields(raw: bytes | msgspec.Raw) -> frozenset[str]:
    """The names of the fields that the spec of a job has; none for a spec that cannot be read."""
    try:
        return frozenset(_SPEC_FIELDS.decode(raw).spec)
    except (ValueError, RecursionError):
        return frozenset()


def _managed_by_errors(old: _ManagedSpec | None, new: _ManagedSpec | None) -> list[str]:
    fields = (
        ("spec.managedBy", old and old.managed_by, new and new.managed_by),
        ("spec.runPolicy.managedBy", *(spec and spec.run_policy and spec.run_policy.managed_by for spec in (old, new))),
    )
    return [f"{path}: {MANAGED_BY_CHANGED}" for path, before, after in fields if before != after]


def _is_same(old: str, new: str) -> bool:
    """True when two error messages differ only in numbers and ids, such as the used quota or a request id. Storing each
    of them would trigger the next pass, and that the next status."""
    return _VOLATILE.sub("#", old) == _VOLATILE.sub("#", new)


_VOLATILE = re.compile(r"\w*\d\w*")


def changed_status(old: Any, new: Any) -> dict[str, Any] | None:
    """The new status as it goes onto the wire, with the message of its summary; None when nothing changed."""
    summary = msgspec.structs.replace(new.summary, message=message_of(new.conditions))
    return _on_the_wire(old, msgspec.structs.replace(new, summary=summary))


def _on_the_wire(old: Wire, new: Wire) -> dict[str, Any] | None:
    # through JSON, so that tuples and times are what the API server will give back
    return None if old == new else msgspec.json.decode(msgspec.json.encode(new))


def cleared(conditions: Conditions, *, all_created: bool, now: datetime) -> Conditions:
    """Take back what is no longer true: the spec is accepted now, and all pods exist."""
    if condition.find(conditions, condition.ACCEPTED) and not condition.is_true(conditions, condition.ACCEPTED):
        conditions = condition.put_standard(conditions, condition.ACCEPTED, True, reason.VALID, "", now)
    if all_created and condition.is_true(conditions, condition.POD_CREATE_FAILED):
        conditions = condition.put_standard(conditions, condition.POD_CREATE_FAILED, False, reason.CREATED, "", now)
    return conditions


def portless(conditions: Conditions, error: PortError | None, now: datetime) -> Conditions:
    """Say that pods wait for a port; no error changes nothing."""
    if error is None:
        return conditions
    return condition.put_standard(conditions, condition.POD_CREATE_FAILED, True, error.reason, error.message, now)


def named(names: Sequence[str], limit: int = 10) -> str:
    """A list of names that fits into an Event."""
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")
