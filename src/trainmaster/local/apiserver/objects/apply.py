"""Server-side apply without owners of fields: what the object says is merged into what is stored, and nothing else
changes. A cluster also removes the fields that the same manager has applied before and does not name any more."""

from typing import Any

from trainmaster.local.apiserver.http.status import bad_request
from trainmaster.local.apiserver.objects import patch, strategic, write
from trainmaster.local.apiserver.objects.state import State, Target

Object = dict[str, Any]

NO_OWNERS = (
    "the local cluster keeps no owners of fields: a field that you removed from the manifest stays in the object; "
    "kubectl apply without --server-side removes it"
)


def apply(state: State, target: Target, body: Object, options: write.WriteOptions) -> write.Outcome:
    """Creates the object, or changes it and warns; raises Refusal."""
    if not target.subresource and state.store.get(target.place) is None:
        return write.create(state, target, body, options)
    said = _said(body)

    def merged(obj: Object) -> Any:
        if target.served.definition is not None:
            return patch.merge(obj, said)
        try:
            return strategic.merge(obj, said, target.served.resource.kind)
        except strategic.BadPatch as error:
            raise bad_request(str(error)) from None

    outcome = write.patch(state, target, merged, options)
    return outcome._replace(warnings=(*outcome.warnings, NO_OWNERS))


def _said(value: Any) -> Any:
    """Without nulls: a merge would delete these fields, and an apply says nothing about them."""
    if isinstance(value, list):
        return [_said(each) for each in value]
    if isinstance(value, dict):
        return {key: _said(each) for key, each in value.items() if each is not None}
    return value
