"""Says what to install when an example lacks a package. All programs of an example end by the same sentence."""

import importlib
import importlib.util
import sys
from typing import Any, NoReturn

PACKAGES = {"sklearn": "scikit-learn"}
"""Of modules that are called otherwise."""


def need(module: str, package: str) -> Any:
    """The module; without its package the program ends with one sentence."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        _end(package, package)


def need_extra(*modules: str) -> None:
    """For modules of the extra `examples`, before they are imported."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            _end(PACKAGES.get(module, module), "'.[examples]'")


def _end(package: str, what: str) -> NoReturn:
    sys.exit(f"this example needs {package}, and {sys.executable} does not have it: pip install {what}")
