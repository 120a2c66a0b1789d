"""Defects that were put in on purpose. Each is one that operators really have; the laws must catch every one."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from trainmaster.core import plan as plans
from trainmaster.core import template
from trainmaster.core.ids import POD, Key, Resource
from trainmaster.core.plan import Plan
from trainmaster.core.slot import Slot, numbered
from trainmaster.kinds.aitrainingjob import body
from trainmaster.kinds.aitrainingjob import kind as aitj
from trainmaster.kinds.aitrainingjob import status as aitj_status
from trainmaster.kinds.aitrainingjob.kind import AITrainingJobKind
from trainmaster.kinds.base import Kind
from trainmaster.kinds.dijob.kind import DIJobKind, NerveXJobKind
from trainmaster.kinds.ditask import rank
from trainmaster.kinds.ditask.kind import DITaskKind
from trainmaster.kinds.mlkube import replica as mlkube_replica
from trainmaster.kinds.mlkube.kind import MxJobKind
from trainmaster.kinds.mxjob.kind import MXJobKind
from trainmaster.lifecycle import decide, facts, node, port, restart
from trainmaster.lifecycle.decide import Pass
from trainmaster.runtime.barrier import Barrier
from trainmaster.runtime.executor import Executor
from trainmaster.runtime.host_ports import HostPorts
from trainmaster.runtime.node_index import NodeIndex
from trainmaster.runtime.status_writer import StatusWriter
from trainmaster.runtime.store import Store


class Mutation(NamedTuple):
    name: str
    kind: type[Kind[Any]]
    put_in: Callable[[pytest.MonkeyPatch], None]


def _result_after_the_deletes(patch: pytest.MonkeyPatch) -> None:
    def end(self: Any, *result: Any) -> Plan:
        wanted = original(self, *result)
        return msgspec.structs.replace(wanted, status_first=False, deletes=self._deletes("All", ""))

    original = Pass._end
    patch.setattr(Pass, "_end", end)


def _delete_without_uid(patch: pytest.MonkeyPatch) -> None:
    original = plans.Delete

    def nameless(resource: Resource, key: Key, uid: str, why: str) -> plans.Delete:
        return original(resource, key, "", why)

    patch.setattr(plans, "Delete", nameless)


def _terminal_phase_not_sticky(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(aitj, "ENDED", frozenset())


def _terminal_phase_not_sticky_dijob(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("trainmaster.kinds.dijob.model.ENDED", frozenset())


def _unsynced_store_looks_empty(patch: pytest.MonkeyPatch) -> None:
    def synced(self: Store[Any]) -> dict[Key, Any]:
        if self._views is None:
            self._views = {}
        return self._views

    patch.setattr(Store, "_synced", synced)


def _no_barrier(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Barrier, "is_open", lambda self, uid: True)


def _status_without_precondition(patch: pytest.MonkeyPatch) -> None:
    async def store_status(self: Any, resource: Resource, job: Any, old: Any, wanted: Plan) -> bool:
        status = msgspec.json.encode({"status": wanted.status})
        await self.cluster.patch(resource, job.key, status, subresource="status")
        return True

    patch.setattr(Executor, "store_status", store_status)


def _children_found_by_name_not_by_owner(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Store, "owned", lambda self, namespace, uid: list(self._synced().values()))


def _creates_without_owner(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(template.Owner, "reference", lambda self, blocks: {"uid": self.uid, "controller": False})


def _random_names(patch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(1_000_000))
    original = numbered

    def changing(job: str, replicas: Any) -> tuple[Slot, ...]:
        slots = original(job, replicas)
        return tuple(msgspec.structs.replace(slot, name=f"{slot.name}-{next(numbers)}") for slot in slots)

    patch.setattr(body, "numbered", changing)


def _ended_job_gets_its_pod_back(patch: pytest.MonkeyPatch) -> None:
    original = Pass._clean_up

    def clean_up(self: Any) -> Plan:
        return msgspec.structs.replace(original(self), creates=tuple(self._missing((), ())))

    patch.setattr(Pass, "_clean_up", clean_up)


def _termination_is_edge_triggered(patch: pytest.MonkeyPatch) -> None:
    """The deletes are sent once, with the result; whether they arrived is not looked at."""
    seen: set[str] = set()
    original = Pass._finish

    def finish(self: Any, ending: Any) -> Plan:
        wanted, uid = original(self, ending), self.job.metadata.uid
        if uid in seen:
            return msgspec.structs.replace(wanted, deletes=())
        seen.add(uid)
        return wanted

    patch.setattr(Pass, "_finish", finish)


def _status_says_the_time(patch: pytest.MonkeyPatch) -> None:
    original = aitj_status.enter

    def enter(status: Any, phase: str, message: str, now: Any) -> Any:
        return msgspec.structs.replace(original(status, phase, message, now), start_time=now)

    patch.setattr(aitj_status, "enter", enter)


def _lazy_status_is_never_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StatusWriter, "is_due", lambda self, key, delay, is_waiting: not delay)


def _generation_seen_is_guessed(patch: pytest.MonkeyPatch) -> None:
    original = Pass._proceed

    def proceed(self: Any) -> Plan:
        wanted = original(self)
        if wanted.status is None:
            return wanted
        guessed = len(self.facts.observed.all_pods)
        return msgspec.structs.replace(wanted, status={**wanted.status, "observedGeneration": guessed})

    patch.setattr(Pass, "_proceed", proceed)


def _restart_is_counted_after_the_deletes(patch: pytest.MonkeyPatch) -> None:
    def again(self: Any, failed: Any) -> Plan:
        pods = plans.deletions(POD, self.facts.observed.all_pods, "")
        return msgspec.structs.replace(original(self, failed), status_first=False, deletes=pods)

    original = Pass._restart
    patch.setattr(Pass, "_restart", again)


def _a_pod_of_the_old_attempt_is_judged_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(restart.Restarts, "attempt_of", lambda self, index: 0)


def _a_role_that_restarts_begins_to_count_anew(patch: pytest.MonkeyPatch) -> None:
    original = restart.decide
    patch.setattr(
        restart, "decide", lambda failed, rules, restarts, history, **times: original(failed, rules, {}, (), **times)
    )


def _a_job_is_deleted_whether_it_has_ended_or_not(patch: pytest.MonkeyPatch) -> None:
    original = Pass._proceed

    def proceed(self: Any) -> Plan:
        wanted = original(self)
        if self.job.spec.ttl_seconds_after_finished is None:
            return wanted
        key, uid = self.kind.key(self.job)
        gone = plans.Delete(self.kind.resource, key, uid, "")
        return msgspec.structs.replace(wanted, deletes=(*wanted.deletes, gone))

    patch.setattr(Pass, "_proceed", proceed)


def _back_off_is_never_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(restart.Restarts, "is_waiting", lambda self, now: self.next_time is not None)


def _every_pod_is_forced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(node, "lost", lambda nodes, grace, now, **options: frozenset(nodes or ()))


def _an_old_view_of_a_node_decides(patch: pytest.MonkeyPatch) -> None:
    def of(self: Any, pods: Any) -> Any:
        for on in self._bound.values():
            on.update(dict.fromkeys(on, 0))
        return original(self, pods)

    original = NodeIndex.of
    patch.setattr(NodeIndex, "of", of)


def _drawn_ports_are_not_booked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostPorts, "draw", lambda self, uid, ports: None)


def _ports_of_others_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostPorts, "taken", lambda self, uid: frozenset())


def _pods_before_their_ports_are_stored(patch: pytest.MonkeyPatch) -> None:
    original = port.allot

    def allot(*args: Any, **options: Any) -> port.Allotment:
        return msgspec.structs.replace(original(*args, **options), is_stored=True)

    patch.setattr(decide, "allot", allot)


def _a_job_that_grows_gets_all_its_ports_anew(patch: pytest.MonkeyPatch) -> None:
    original = port.allot
    patch.setattr(decide, "allot", lambda wanted, stored, **options: original(wanted, {}, **options))


def _the_port_of_an_aggregator_is_never_kept(patch: pytest.MonkeyPatch) -> None:
    def other_children(self: Any, job: Any, facts: Any, now: Any) -> decide.Extra:
        return msgspec.structs.replace(original(self, job, facts, now), is_new=True)

    original = NerveXJobKind.other_children

    patch.setattr(NerveXJobKind, "other_children", other_children)


def _outdated_pods_are_classified_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(facts, "is_current", lambda *_: True)


def _suspension_is_stored_after_the_deletes(patch: pytest.MonkeyPatch) -> None:
    def suspend(self: Any) -> Plan:
        return msgspec.structs.replace(original(self), status_first=False, deletes=self._deletes("All", ""))

    original = Pass._suspend
    patch.setattr(Pass, "_suspend", suspend)


def _a_job_forgets_that_all_have_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mlkube_replica, "has_formed", lambda job: False)


def _unknown_fields_are_removed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Kind, "known_status", lambda self, view: self.status_of(view)[1])


def _ranks_are_given_anew(patch: pytest.MonkeyPatch) -> None:
    """In the order of the tasks, whatever ranks the pods have that run."""
    original = rank.ranks_of
    patch.setattr(rank, "ranks_of", lambda stored, slots, roles, missing: original({}, slots, roles, missing))


def _addresses_are_in_the_order_of_tasks(patch: pytest.MonkeyPatch) -> None:
    def nodes(job: Any, slots: Any, ranks: Any, domain: str) -> str:
        return ",".join(rank.address(job, slot.name, domain) for slot in slots)

    patch.setattr(rank, "nodes", nodes)


MUTATIONS = (
    Mutation("ranks are given anew", DITaskKind, _ranks_are_given_anew),
    Mutation("addresses are in the order of tasks", DITaskKind, _addresses_are_in_the_order_of_tasks),
    Mutation("the result is stored after the deletes (DIJob with tasks)", DITaskKind, _result_after_the_deletes),
    Mutation("the result is stored after the deletes", AITrainingJobKind, _result_after_the_deletes),
    Mutation("a delete without uid", AITrainingJobKind, _delete_without_uid),
    Mutation("terminal phases are not sticky (AITrainingJob)", AITrainingJobKind, _terminal_phase_not_sticky),
    Mutation("terminal phases are not sticky (DIJob)", DIJobKind, _terminal_phase_not_sticky_dijob),
    Mutation("an unsynced store looks empty", AITrainingJobKind, _unsynced_store_looks_empty),
    Mutation("unknown fields of the status are removed", AITrainingJobKind, _unknown_fields_are_removed),
    Mutation("no read-your-writes barrier", AITrainingJobKind, _no_barrier),
    Mutation("a status patch without preconditions", DIJobKind, _status_without_precondition),
    Mutation("children are not told apart by owner", AITrainingJobKind, _children_found_by_name_not_by_owner),
    Mutation("children without our controller reference", DIJobKind, _creates_without_owner),
    Mutation("names that change from pass to pass", AITrainingJobKind, _random_names),
    Mutation("an ended job gets its pod back", DIJobKind, _ended_job_gets_its_pod_back),
    Mutation("termination is edge triggered", AITrainingJobKind, _termination_is_edge_triggered),
    Mutation("the status changes with the time", AITrainingJobKind, _status_says_the_time),
    Mutation("a lazy status is never stored", AITrainingJobKind, _lazy_status_is_never_stored),
    Mutation("observedGeneration is guessed", AITrainingJobKind, _generation_seen_is_guessed),
    Mutation("a restart is counted after the deletes", AITrainingJobKind, _restart_is_counted_after_the_deletes),
    Mutation("a fault is judged again", AITrainingJobKind, _a_pod_of_the_old_attempt_is_judged_again),
    Mutation("restarts are counted anew", AITrainingJobKind, _a_role_that_restarts_begins_to_count_anew),
    Mutation("a suspension is not stored", AITrainingJobKind, _suspension_is_stored_after_the_deletes),
    Mutation("a job is deleted before its end", AITrainingJobKind, _a_job_is_deleted_whether_it_has_ended_or_not),
    Mutation("back-off is never over", AITrainingJobKind, _back_off_is_never_over),
    Mutation("pods are forced to go from nodes that are well", AITrainingJobKind, _every_pod_is_forced),
    Mutation("an old view of a node decides", AITrainingJobKind, _an_old_view_of_a_node_decides),
    Mutation("the result is stored after the deletes (MXJob)", MXJobKind, _result_after_the_deletes),
    Mutation("outdated pods are classified again (MXJob)", MXJobKind, _outdated_pods_are_classified_again),
    Mutation("a suspension is not stored (MXJob)", MXJobKind, _suspension_is_stored_after_the_deletes),
    Mutation("a suspension is not stored (MxJob)", MxJobKind, _suspension_is_stored_after_the_deletes),
    Mutation("a job forgets that all replicas have run (MxJob)", MxJobKind, _a_job_forgets_that_all_have_run),
    Mutation(
        "a restart is counted after the deletes (NerveXJob)", NerveXJobKind, _restart_is_counted_after_the_deletes
    ),
    Mutation("the port of an aggregator is never kept", NerveXJobKind, _the_port_of_an_aggregator_is_never_kept),
    Mutation("drawn ports are not booked", AITrainingJobKind, _drawn_ports_are_not_booked),
    Mutation("ports of others are not looked at", AITrainingJobKind, _ports_of_others_are_not_looked_at),
    Mutation("pods before their ports are stored", AITrainingJobKind, _pods_before_their_ports_are_stored),
    Mutation("a job that grows gets all its ports anew", AITrainingJobKind, _a_job_that_grows_gets_all_its_ports_anew),
)
