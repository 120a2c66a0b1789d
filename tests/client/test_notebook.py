"""The notebook of the documents does what is written in it."""

import json
import re
import subprocess
import sys
from pathlib import Path

from testbed.operator import REPOSITORY
from tests.client.notebook import Output, code_cells
from tests.local.conftest import Start
from tests.local.program import environ_of

NOTEBOOK = REPOSITORY / "docs" / "client.ipynb"


def test_the_notebook_prints_what_is_stored_in_it(tmp_path: Path) -> None:
    copy = tmp_path / "client.ipynb"
    copy.write_text(NOTEBOOK.read_text())
    _execute(copy, tmp_path)

    assert outputs_of(copy) == outputs_of(NOTEBOOK)
    assert list(tmp_path.iterdir()) == [copy]


def test_the_notebook_runs_twice_on_a_cluster_that_keeps_its_jobs(start: Start, tmp_path: Path) -> None:
    copy = tmp_path / "client.ipynb"
    copy.write_text(NOTEBOOK.read_text())
    start("up").until(lambda line: "export KUBECONFIG=" in line)
    for _ in range(2):
        _execute(copy, tmp_path)

    assert "rank 0 of 2" in str(outputs_of(copy))


def test_the_notebook_has_output_of_every_sort() -> None:
    outputs = [each for outputs in outputs_of(NOTEBOOK) for each in outputs]

    assert {each["output_type"] for each in outputs} == {"stream", "execute_result"}
    assert any("text/html" in each.get("data", {}) for each in outputs)


def _execute(notebook: Path, home: Path) -> None:
    command = [sys.executable, "-m", "tests.client.notebook", str(notebook)]
    path = f"{REPOSITORY}:{REPOSITORY / 'src'}"
    subprocess.run(command, cwd=home, env={**environ_of(home), "PYTHONPATH": path}, check=True)


def outputs_of(notebook: Path) -> list[Output]:
    """Without times, and with the lines of replicas in one order."""
    cells = [cell["outputs"] for cell in code_cells(json.loads(notebook.read_text()))]
    for output in (each for outputs in cells for each in outputs):
        output["text"] = sorted(re.sub(r"\d+s ago", "… ago", text) for text in output.get("text", ()))
        if html := output.get("data", {}).get("text/html"):
            output["data"]["text/html"] = [re.sub(r">\d+s<", ">…<", text) for text in html]
    return cells
