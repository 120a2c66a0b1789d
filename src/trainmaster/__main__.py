"""``python -m trainmaster``: the same as the command ``trainmaster``."""

from trainmaster.cli import main

main()
