"""Kubernetes' Job controller in the model: it keeps one pod for each batch Job, counts how they end, and gives up."""

import msgspec

from tests.laws.memory import MemoryApi, Object
from trainmaster.core.ids import JOB, POD, Key

BACKOFF_LIMIT = 6
"""Kubernetes' own."""


def is_over(job: Object) -> bool:
    """No pod of it is started any more."""
    conditions = job.get("status", {}).get("conditions", ())
    return bool(job["spec"].get("suspend")) or any(c["type"] in ("Complete", "Failed") for c in conditions)


async def control_jobs(api: MemoryApi) -> None:
    """One step for every batch Job."""
    for key, job in sorted(api.objects.get(JOB, {}).items()):
        pods = api.owned_by(job["metadata"]["uid"], POD)
        alive = [name for name, pod in pods.items() if pod["status"]["phase"] in ("Pending", "Running")]
        if is_over(job):
            for name in alive:
                await api.delete(POD, name, uid="")
        elif any(pod["status"]["phase"] == "Succeeded" for pod in pods.values()):
            api.set_status(JOB, key, {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]})
        elif len(pods) - len(alive) > job["spec"].get("backoffLimit", BACKOFF_LIMIT):
            given_up = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "given up"}
            api.set_status(JOB, key, {"conditions": [given_up]})
        elif not alive:
            await _start(api, key, job, len(pods))


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
