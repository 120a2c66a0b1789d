"""JAX: jax.distributed.initialize."""

from pathlib import Path

import pytest

from tests.contract.framework.example import python_with
from tests.local.conftest import Start
from tests.local.program import job, role, written

pytestmark = pytest.mark.long

SUMS = """
import os, jax, numpy
from jax.experimental.multihost_utils import process_allgather
jax.config.update("jax_cpu_collectives_implementation", "gloo")
count, rank = (int(os.environ[f"JAX_{name}"]) for name in ("NUM_PROCESSES", "PROCESS_ID"))
jax.distributed.initialize(num_processes=count, process_id=rank)
print("sum", int(process_allgather(numpy.array([rank + 1])).sum()), "of", jax.process_count(), flush=True)
jax.distributed.shutdown()
"""


def test_three_processes_find_each_other(start: Start, tmp_path: Path) -> None:
    python = python_with("jax", "TRAINMASTER_JAX_PYTHON")
    worker = role([str(python), "-c", SUMS], 3, ports=(1234,))

    code, said, errors = start("run", written(tmp_path, job(spec={"frameworkType": "jax"}, worker=worker))).end()

    assert code == 0, said + errors
    assert said.count("| sum 6 of 3\n") == 3
