"""How large a job may be.

The operator keeps all jobs in memory, and copies their templates into pods. What others write into a job does not
count: its status, and ``managedFields``, which the API server writes.
"""

import msgspec

MAX_JOB = 256 * 1024
"""Bytes of JSON."""


class _Meta(msgspec.Struct, rename="camel"):
    managed_fields: msgspec.Raw = msgspec.Raw()


class _Job(msgspec.Struct):
    metadata: _Meta
    status: msgspec.Raw = msgspec.Raw()


_JOB = msgspec.json.Decoder(_Job)


def size_error(raw: bytes) -> str:
    """The error if a job, which was decoded before, is too large; empty otherwise."""
    if len(raw) <= MAX_JOB:
        return ""
    job = _JOB.decode(raw)
    size = len(raw) - len(bytes(job.status)) - len(bytes(job.metadata.managed_fields))
    if size <= MAX_JOB:
        return ""
    room = f"a job may have {MAX_JOB // 1024} KiB; move scripts and data into a ConfigMap or a volume"
    return f"object: it has {-(-size // 1024)} KiB without its status, and {room}"
