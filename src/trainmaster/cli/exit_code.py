"""The exit codes of the commands."""

SUCCEEDED = 0
"""The command did what it should. Of ``run``: every job succeeded."""
FAILED = 1
"""The command failed, and stderr says why. Of ``run``: a job failed. Of ``operator``: it does not lead any more."""
BAD_INPUT = 2
"""The command line is wrong. Of ``run``: also a manifest is, or it cannot start."""
TIMED_OUT = 124
"""Of ``run``: ``--timeout`` was reached."""
INTERRUPTED = 130
"""Of ``run`` and ``logs``: Ctrl-C was pressed. After SIGTERM the code of ``run`` is 143."""
BROKEN_PIPE = 141
"""Of ``run`` and ``logs``: the reader of the output has ended, for example ``head``."""
