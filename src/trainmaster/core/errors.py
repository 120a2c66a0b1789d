"""What can go wrong, by meaning. Callers catch these; nobody above the transport looks at a status code.

Trainmaster
├── ApiError                the API server answered, and the answer is no
│   ├── Unauthorized        401: who are you?
│   ├── Forbidden           403: you may not (RBAC, quota, admission)
│   ├── NotFound            404
│   ├── AlreadyExists       409 with reason AlreadyExists
│   ├── Conflict            409 otherwise: a precondition (uid, resourceVersion) does not hold
│   ├── Gone                410: the resourceVersion is too old, list again
│   ├── Invalid             400, 413, 422: the body can never be accepted
│   ├── TooManyRequests     429, with the seconds the server asked to wait
│   └── ServerError         5xx
├── Unreachable             no answer: refused, cut, or not in time; a write may or may not have happened
├── NotSynced               a store was read before its first complete list
├── NotLeading              a write was attempted without a valid lease
├── BadSpec                 a job that cannot be understood or must not be run as written
└── BadConfig               the process cannot start with what it was given
"""


class Trainmaster(Exception):
    """Root of everything that trainmaster raises on purpose."""


class ApiError(Trainmaster):
    """The API server refused. ``message`` is its own sentence; ``reason`` its CamelCase word."""

    def __init__(self, message: str, *, code: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason


class Unauthorized(ApiError): ...


class Forbidden(ApiError): ...


class NotFound(ApiError): ...


class AlreadyExists(ApiError): ...


class Conflict(ApiError): ...


class Gone(ApiError): ...


class Invalid(ApiError): ...


class TooManyRequests(ApiError):
    def __init__(self, message: str, *, code: int = 429, reason: str = "", retry_after: float = 1.0) -> None:
        super().__init__(message, code=code, reason=reason)
        self.retry_after = retry_after


class ServerError(ApiError): ...


class Unreachable(Trainmaster): ...


class NotSynced(Trainmaster): ...


class NotLeading(Trainmaster): ...


class BadSpec(Trainmaster):
    """All that is wrong with a job's spec, each as ``path: what is wrong and what to do``."""

    def __init__(self, *errors: str) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors


class BadConfig(Trainmaster): ...


def located(error: Exception, root: str = "") -> str:
    """msgspec says ``Expected `int`, got `str` - at `$.spec.x` ``; Kubernetes' users expect the path first."""
    what, _, where = str(error).partition(" - at `$")
    return f"{(root + where.rstrip('`')).lstrip('.') or 'object'}: {what}"
