import asyncio
from pathlib import Path

import pytest
import structlog

from tests.webhook.build import NOW
from tests.webhook.clock import Clock
from trainmaster.webhook.certificate import Pair, first_material, pem_of
from trainmaster.webhook.folder import FolderKeeper
from trainmaster.webhook.served import Served

HOSTS = frozenset({"127.0.0.1"})


def a_pair() -> Pair:
    return first_material(HOSTS, NOW).serving


def write(folder: Path, pair: Pair) -> None:
    (folder / "tls.crt").write_bytes(pem_of([pair.certificate]))
    (folder / "tls.key").write_bytes(pair.secret)


@pytest.fixture
def served() -> Served:
    return Served()


@pytest.fixture
def keeper(tmp_path: Path, served: Served, clock: Clock) -> FolderKeeper:
    return FolderKeeper(tmp_path, served, now=clock.now)


async def test_files_are_read_again_when_they_change(keeper: FolderKeeper, served: Served, tmp_path: Path) -> None:
    for pair in (a_pair(), a_pair()):
        write(tmp_path, pair)
        await keeper.look()
        assert served.leaf == pair.certificate
        assert keeper.trouble == ""


async def test_files_that_stay_are_loaded_once(keeper: FolderKeeper, tmp_path: Path) -> None:
    write(tmp_path, a_pair())
    with structlog.testing.capture_logs() as logs:
        await keeper.look()
        await keeper.look()

    assert [line["event"] for line in logs] == ["certificate loaded"]


async def test_without_files_it_is_not_ready_and_says_which(keeper: FolderKeeper, tmp_path: Path) -> None:
    await keeper.look()

    assert keeper.trouble == f"{tmp_path}/tls.crt and tls.key: No such file or directory"


async def test_half_exchanged_files_are_left_until_the_other_half_is_there(
    keeper: FolderKeeper, served: Served, tmp_path: Path
) -> None:
    old, new = a_pair(), a_pair()
    write(tmp_path, old)
    await keeper.look()

    (tmp_path / "tls.crt").write_bytes(pem_of([new.certificate]))
    await keeper.look()
    assert (served.leaf, keeper.trouble) == (old.certificate, "")

    write(tmp_path, new)
    await keeper.look()
    assert served.leaf == new.certificate


async def test_an_old_certificate_is_trouble(keeper: FolderKeeper, clock: Clock, tmp_path: Path) -> None:
    write(tmp_path, a_pair())
    await keeper.look()
    clock.jump(91)

    assert keeper.trouble.startswith("the certificate is valid from ")


@pytest.mark.looptime
async def test_it_looks_until_told_to_stop(
    keeper: FolderKeeper, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    loop = asyncio.get_running_loop()

    async def look() -> None:
        looks.append(loop.time())

    monkeypatch.setattr(keeper, "look", look)
    stop = asyncio.Event()
    loop.call_later(25, stop.set)
    await keeper.run(stop)

    assert looks == [0, 10, 20]
