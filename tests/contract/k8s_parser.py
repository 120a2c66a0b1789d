"""What `ditask --platform k8s` makes of the environment of a pod, by DI-engine's own parser."""

import functools
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest


@functools.cache
def load() -> Any:
    """The function, from its file: the packages around it would import torch."""
    package = importlib.util.find_spec("ding")
    if package is None or not package.submodule_search_locations:
        pytest.skip("DI-engine is not installed: run make setup")
    file = Path(package.submodule_search_locations[0]) / "entry" / "cli_parsers" / "k8s_parser.py"
    spec = importlib.util.spec_from_file_location("k8s_parser", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.k8s_parser


def parsed(environment: Mapping[str, str], **options: Any) -> dict[str, Any]:
    """What ditask is started with in a container of this environment. Raises what ditask would die of."""
    with patch.dict(os.environ, environment, clear=True):
        found: dict[str, Any] = load()(None, **options)
    return found
