"""Kubernetes' Job controller in the model: it keeps one pod for each batch Job, counts how they end, and gives up."""

import msgspec

from tests.laws.memory import MemoryApi, Object
from trainmaster.core.ids import JOB, POD, Key

BACKOFF_LIMIT = 6
"""Kubernetes' own."""


def is_over(job: Object) -> bool:
    """No pod of it is started any more."""
    return bool(job["spec"].get("suspend")) or _says(job, "Complete") or _says(job, "FailureTarget")


async def control_jobs(api: MemoryApi) -> None:
    """One step for every batch Job. A pod counts as failed from when it is told to go; its Job has failed when the last
    one is gone, and until then it says that it will."""
    for key, job in sorted(api.objects.get(JOB, {}).items()):
        pods = api.owned_by(job["metadata"]["uid"], POD)
        alive = [name for name, pod in pods.items() if pod["status"]["phase"] in ("Pending", "Running")]
        staying = [name for name in alive if "deletionTimestamp" not in pods[name]["metadata"]]
        if is_over(job):
            for name in staying:
                await api.delete(POD, name, uid="")
            is_failing = _says(job, "FailureTarget") and not _says(job, "Failed")
            if is_failing and not alive and not job["spec"].get("suspend"):
                _give_up(api, key, "FailureTarget", "Failed")
        elif any(pod["status"]["phase"] == "Succeeded" for pod in pods.values()):
            api.set_status(JOB, key, {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]})
        elif len(pods) - len(staying) > job["spec"].get("backoffLimit", BACKOFF_LIMIT):
            _give_up(api, key, "FailureTarget")
        elif not alive:
            await _start(api, key, job, len(pods))


def _says(job: Object, type_: str) -> bool:
    return any(condition["type"] == type_ for condition in job.get("status", {}).get("conditions", ()))


def _give_up(api: MemoryApi, key: Key, *types: str) -> None:
    why = {"status": "True", "reason": "BackoffLimitExceeded", "message": "given up"}
    api.set_status(JOB, key, {"conditions": [{"type": type_, **why} for type_ in types]})


async def _start(api: MemoryApi, key: Key, job: Object, number: int) -> None:
    template = job["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": key.name, "uid": job["metadata"]["uid"]}
    metadata = {
        "name": f"{key.name}-{number}-{job['metadata']['uid']}",
        "labels": template["metadata"]["labels"],
        "ownerReferences": [owner | {"controller": True}],
    }
    body = {"metadata": metadata, "spec": template["spec"]}
    if Key(key.namespace, metadata["name"]) not in api.objects.get(POD, {}):
        await api.create(POD, key.namespace, msgspec.json.encode(body))
