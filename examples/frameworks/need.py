"""Imports what may not be installed, and says what to install."""

import importlib
import sys
from typing import Any


def need(module: str, package: str) -> Any:
    """The module; without its package the program ends with one sentence."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        sys.exit(f"this example needs {package}, and {sys.executable} does not have it: pip install {package}")
