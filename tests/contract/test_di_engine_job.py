"""DIJobs of DI-engine 0.2.3 in local mode: its own commands and its own configuration train CartPole.

`make contract` makes a Python that has DI-engine, and TRAINMASTER_DI_ENGINE_PYTHON names it. torch is needed here, too.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.local.conftest import Start
from tests.local.program import containers_of, written
from tests.manifests.build import Manifest, container, dijob, template

pytestmark = pytest.mark.long

CONFIG = "classic_control/cartpole/config/parallel/cartpole_dqn_config_k8s.py"
"""In the package dizoo."""
STOP_VALUE = 9
"""The reward of an agent that has learned nothing: the tests are about processes."""

PLUGIN = """
from queue import Queue
from ding.utils import COMM_COLLECTOR_REGISTRY
from ding.worker.collector.comm.flask_fs_collector import FlaskFileSystemCollector

@COMM_COLLECTOR_REGISTRY.register("unbounded")
class UnboundedCollector(FlaskFileSystemCollector):
    def __init__(self, cfg):
        super().__init__(cfg)
        self._metadata_queue = Queue()
"""
"""DI-engine's collector waits for ever in close() when its queue of eight samples is full, and the coordinator with it,
on any machine that is busy. A configuration can name another class."""

SURVIVES = 'exec "$DING" -m dist --module collector -c ./config.py.pkl -s 0 -clp $COLLECTOR_PORT'
IS_KILLED = """
"$DING" -m dist --module collector -c ./config.py.pkl -s 0 -clp $COLLECTOR_PORT > $KUBERNETES_POD_NAME.log 2>&1 &
collector=$!
if mkdir killed 2> /dev/null; then
    until grep -q "CFG INFO" $KUBERNETES_POD_NAME.log; do sleep 0.1; done  # the coordinator has given it a task
    kill -9 $collector
fi
wait $collector
"""
"""The first collector is killed, once."""


@pytest.fixture(scope="session")
def ding() -> Path:
    """The command of DI-engine."""
    python = os.environ.get("TRAINMASTER_DI_ENGINE_PYTHON", "")
    if not python:
        pytest.skip("TRAINMASTER_DI_ENGINE_PYTHON names no Python with DI-engine 0.2.3: run make contract")
    code = "import ding, torch; print(ding.__version__)"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    if found.stdout.strip() != "v0.2.3":
        said = (found.stdout + found.stderr).strip().rpartition("\n")[2]
        pytest.skip(f"{python} has no DI-engine 0.2.3 with torch: {said}")
    return Path(python).with_name("ding")


def configure(ding: Path, folder: Path, stop_value: str) -> None:
    """The configuration as DI-engine ships it, also with its address of di-server: ``di-server.di-system:8080``."""
    (given,) = ding.parent.parent.glob(f"lib/python3.*/site-packages/dizoo/{CONFIG}")
    text = given.read_text()
    assert "system_addr='di-server.di-system:8080'" in text
    shipped = "type='flask_fs',\n        import_names=['ding.worker.collector.comm.flask_fs_collector']"
    for old, new in (
        ("stop_value=195", f"stop_value={stop_value}"),
        (shipped, "type='unbounded', import_names=['unbounded']"),
    ):
        assert text.count(old) == 1, f"{given} does not have {old}"
        text = text.replace(old, new)
    (folder / "config.py").write_text(text)
    (folder / "unbounded.py").write_text(PLUGIN)


def job(ding: Path, *, collector: str, **spec: Any) -> Manifest:
    def role(command: str) -> Manifest:
        own = {"DING": str(ding), "OMP_NUM_THREADS": "1", "PYTHONPATH": "."}
        env = [{"name": name, "value": value} for name, value in own.items()]
        return {"template": template(container(command=["bash", "-c", command], env=env))}

    coordinator = (
        '"$DING" -m dist --module config -P k8s -c ./config.py -s 0 && '
        'exec "$DING" -m dist --module coordinator -c ./config.py.pkl -s 0 -cdp $COORDINATOR_PORT'
    )
    learner = 'exec "$DING" -m dist --module learner -c ./config.py.pkl -s 0 -lp $LEARNER_PORT'
    return dijob("job", coordinator=role(coordinator), collector=role(collector), learner=role(learner), **spec)


def test_a_job_of_di_engine_trains_to_its_end(ding: Path, start: Start, tmp_path: Path) -> None:
    configure(ding, tmp_path, str(STOP_VALUE))

    code, said, errors = start("run", written(tmp_path, job(ding, collector=SURVIVES)), "--timeout", "4m").end()

    assert code == 0, said + errors
    assert "Your RL agent is converged" in said
    assert containers_of(tmp_path) == []


def test_a_job_whose_collector_is_killed_restarts_as_a_whole_and_succeeds(
    ding: Path, start: Start, tmp_path: Path
) -> None:
    """It cannot converge before: the coordinator reads another stop value when a collector was killed."""
    configure(ding, tmp_path, f"{STOP_VALUE} if __import__('os').path.exists('killed') else 10**6")
    manifest = job(ding, collector=IS_KILLED, runPolicy={"restartScope": "All"})

    code, said, errors = start("run", written(tmp_path, manifest), "--timeout", "4m").end()

    assert code == 0, said + errors
    assert (tmp_path / "killed").exists()
    assert "dijob/job Succeeded" in said
    assert containers_of(tmp_path) == []
