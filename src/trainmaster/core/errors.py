"""All errors, by meaning. Callers catch these; only the transport reads status codes.

Trainmaster
├── ApiError                the API server refused the request
│   ├── Unauthorized        401: the credential is missing or not valid
│   ├── Forbidden           403: not allowed (RBAC, quota, admission)
│   │   └── Terminating     403: the namespace is being deleted, so nothing is created in it
│   ├── NotFound            404
│   ├── AlreadyExists       409 with reason AlreadyExists
│   ├── Conflict            409 otherwise: a precondition (uid, resourceVersion) does not hold
│   │   └── Stale           200: nothing had to be changed, although our copy of the object differs
│   ├── Gone                410: the resourceVersion is too old, list again
│   ├── Invalid             400, 413, 422: the body can never be accepted
│   │   └── UnknownField    400, 422: the definition of a custom resource is older than the body
│   ├── TooManyRequests     429, with the seconds of Retry-After
│   └── ServerError         5xx
├── Unreachable             no answer: refused, cut, or timed out; a write may or may not have happened
├── TooLarge                an answer is longer than the caller reads
├── NotSynced               a store was read before its first complete list
├── NotLeading              a write was attempted without a valid lease
├── BadSpec                 a job that cannot be decoded or must not be run as written
└── BadConfig               the process cannot start with its options or environment
"""

import re


class Trainmaster(Exception):
    """Base of all exceptions that trainmaster raises."""


class ApiError(Trainmaster):
    """The API server refused the request. ``message`` names the request; ``answer`` and ``reason`` are those of its
    Status."""

    def __init__(self, message: str, *, code: int = 0, reason: str = "", answer: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.answer = answer or message

    @property
    def why(self) -> str:
        """Why it refused, for a caller who names the object."""
        return without_subject(self.answer)


class Unauthorized(ApiError): ...


class Forbidden(ApiError): ...


class Terminating(Forbidden): ...


class NotFound(ApiError): ...


class AlreadyExists(ApiError): ...


class Conflict(ApiError): ...


class Stale(Conflict): ...


class Gone(ApiError): ...


class Invalid(ApiError): ...


class UnknownField(Invalid):
    @property
    def fields(self) -> tuple[str, ...]:
        """Paths of the unknown fields, in the words of the API server."""
        return tuple(re.findall(r'unknown field "([^"]+)"', self.message))


class TooManyRequests(ApiError):
    def __init__(
        self, message: str, *, code: int = 429, reason: str = "", answer: str = "", retry_after: float = 1.0
    ) -> None:
        super().__init__(message, code=code, reason=reason, answer=answer)
        self.retry_after = retry_after


class ServerError(ApiError): ...


class Unreachable(Trainmaster): ...


class TooLarge(Trainmaster): ...


class NotSynced(Trainmaster): ...


class NotLeading(Trainmaster): ...


class BadSpec(Trainmaster):
    """All errors of a job's spec, each as ``path: what is wrong and what to do``."""

    def __init__(self, *errors: str) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors


class BadConfig(Trainmaster): ...


_SUBJECT = re.compile(r'\S+ "[^"]*" is (?:forbidden|invalid): ')


def without_subject(answer: str) -> str:
    """What the API server says, without the name of the object: ``exceeded quota: gpu`` of ``pods "worker-0" is
    forbidden: exceeded quota: gpu``."""
    return _SUBJECT.sub("", answer, count=1) if _SUBJECT.match(answer) else answer


def located(error: Exception, root: str = "") -> str:
    """A msgspec error (``Expected `int`, got `str` - at `$.spec.x` ``) with the path first, as in Kubernetes."""
    what, _, where = str(error).partition(" - at `$")
    return f"{(root + where.rstrip('`')).lstrip('.') or 'object'}: {what}"
