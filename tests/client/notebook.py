"""Executes a notebook as a kernel does: in one namespace, with a running event loop and ``await`` in cells.

``python -m tests.client.notebook docs/client.ipynb`` executes it and writes its output into it.
"""

import ast
import asyncio
import contextlib
import inspect
import io
import json
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Output = list[Json]


async def executed(notebook: Json) -> list[Output]:
    """The output of each code cell."""
    names: Json = {"__name__": "__main__"}
    return [await _run("".join(cell["source"]), names) for cell in code_cells(notebook)]


def code_cells(notebook: Json) -> list[Json]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


async def _run(source: str, names: Json) -> Output:
    """What the cell prints, then the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body else None
    last = last if isinstance(last, ast.Expr) else None
    if last:
        tree.body.pop()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        await _evaluated(tree, "exec", names)
        value = await _evaluated(ast.Expression(last.value), "eval", names) if last else None
    return [*_stream(printed.getvalue()), *_result(value)]


async def _evaluated(tree: Any, mode: str, names: Json) -> Any:
    code = compile(tree, "cell", mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    value = eval(code, names)
    return await value if inspect.iscoroutine(value) else value


def _stream(text: str) -> Output:
    return [{"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}] if text else []


def _result(value: Any) -> Output:
    if value is None:
        return []
    data = {"text/plain": [repr(value)]}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = [value._repr_html_()]
    return [{"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"}]


def _write(file: Path) -> None:
    notebook = json.loads(file.read_text())
    for cell, output in zip(code_cells(notebook), asyncio.run(executed(notebook)), strict=True):
        cell["outputs"] = output
    file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
