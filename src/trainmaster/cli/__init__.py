"""The command line: the only place that wires the layers together."""

from trainmaster.cli.main import main

__all__ = ["main"]
