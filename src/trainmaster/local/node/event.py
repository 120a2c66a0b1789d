"""Records events on pods, as a kubelet does."""

from trainmaster.core.ids import POD
from trainmaster.core.plan import Event
from trainmaster.core.view import JobView
from trainmaster.local.node.pod import Pod
from trainmaster.runtime.recorder import Recorder

COMPONENT = "kubelet"


class PodEvents:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def record(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        view = JobView(pod.key, pod.uid, 0, False, b"")
        self._recorder.record(POD, view, COMPONENT, Event(kind, reason, message))
