"""What every test may ask for: the test bed's control plane, a namespace of its own, a client.

One control plane serves the whole run, or each of its workers, and is started by the first test that asks. A test that
uses it, directly or through another fixture, carries the marker `cluster` without saying so. What takes long without
one is `long`.
"""

import itertools
import re
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from testbed import build
from testbed.admin import Admin
from testbed.plane import ControlPlane, User

_numbers = itertools.count(1)


_LONG = (
    "tests/client/test_exit.py",
    "tests/client/test_local.py",
    "tests/client/test_notebook.py",
    "tests/local/test_",
    "tests/why/test_local.py",
    "tests/examples/",
    "tests/hostile/",
    "tests/deploy/test_image.py",
    "tests/local/apiserver/test_fuzz.py",
    "tests/local/apiserver/test_odd_object.py",
    "tests/local/apiserver/test_schema.py::test_a_rule_that_never_ends_is_stopped",
    "tests/local/node/test_shim.py",
    "tests/laws/test_declared.py",
    "tests/laws/test_elastic.py",
    "tests/laws/test_mutations.py",
    "tests/webhook/test_server.py",
    "tests/diserver/test_passing.py",
    "tests/testbed/",
)


_HELM = tuple(f"tests/deploy/test_{name}.py" for name in ("chart", "values", "release", "keep", "helm_test"))


@pytest.hookimpl(tryfirst=True)  # before -m "not cluster" looks at the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/kueue/"):
            item.add_marker(pytest.mark.kueue)
        elif "binaries" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.helm if item.nodeid.startswith(_HELM) else pytest.mark.cluster)
        elif item.nodeid.startswith(_LONG):
            item.add_marker(pytest.mark.long)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outside of looptime's wrapper
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    # looptime asks the policy for the current loop, also in a plain test. The policy then makes one that nobody
    # closes; its warning comes out of the garbage collector in the middle of some later test.
    if pyfuncitem.get_closest_marker("asyncio") is None:
        pyfuncitem.funcargs.pop("event_loop_policy", None)
    return (yield)


@pytest.fixture(autouse=True)
def forgetful_loggers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that runs inside of a test must not decide where the loggers of all later tests write to."""
    configure = structlog.configure

    def without_cache(**given: Any) -> None:
        configure(**{**given, "cache_logger_on_first_use": False})

    monkeypatch.setattr(structlog, "configure", without_cache)


@pytest.fixture(scope="session")
def binaries() -> Path:
    """The folder of the test bed's programs; for a test that starts a control plane of its own."""
    missing = build.missing()
    if missing:
        pytest.fail(f"the test bed has no {', '.join(missing)}: run make testbed", pytrace=False)
    return build.folder()


@pytest.fixture(scope="session")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    """The control plane of this run: etcd and kube-apiserver; no controllers, no scheduler, no nodes.

    Besides the admin and the operator, whom the suites give its ClusterRole, it knows a stranger without any right.
    """
    with ControlPlane(binaries=binaries, users={"stranger": User("stranger")}) as plane:
        yield plane


@pytest.fixture
def namespace(plane: ControlPlane, request: pytest.FixtureRequest) -> str:
    """A fresh namespace. Nobody deletes it: no namespace controller runs, and the plane goes as a whole."""
    name = namespace_name(next(_numbers), request.node.name)
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[Admin]:
    """A client with the admin's token."""
    async with Admin.of(plane) as admin:
        yield admin


def namespace_name(number: int, test: str) -> str:
    """Unique by its number, readable by the name of the test."""
    words = re.sub(r"[^a-z0-9]+", "-", test.lower().removeprefix("test_"))
    return f"t-{number}-{words}"[:40].rstrip("-")
