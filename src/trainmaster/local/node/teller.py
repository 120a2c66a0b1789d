"""Events on pods, as a kubelet records them."""

from trainmaster.core.ids import POD
from trainmaster.core.plan import Event
from trainmaster.core.view import JobView
from trainmaster.local.node.pod import Pod
from trainmaster.runtime.recorder import Recorder

COMPONENT = "kubelet"


class Teller:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def tell(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        view = JobView(pod.key, pod.uid, 0, False, b"")
        self._recorder.record(POD, view, COMPONENT, Event(kind, reason, message))
