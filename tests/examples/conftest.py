import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from examples.rl.web import Listener, Routes

Listen: TypeAlias = Callable[[Routes], str]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Answers by these routes from now on; where, is the answer."""
    started: list[Listener] = []

    def listen(routes: Routes) -> str:
        listener = Listener(0, routes)
        threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True).start()
        started.append(listener)
        return f"127.0.0.1:{listener.port}"

    yield listen
    for listener in started:
        listener.shutdown()
        listener.server_close()
