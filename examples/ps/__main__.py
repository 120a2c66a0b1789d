"""One program for every role, as with MXNet: DMLC_ROLE says which one this process has."""

import os
import signal
import sys

from examples.ps import scheduler, server, worker
from examples.ps.setting import Setting

RUN = {"scheduler": scheduler.run, "server": server.run, "worker": worker.run}


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the first process of a container must say so
    setting = Setting.of(os.environ)
    return RUN[setting.role](setting)


if __name__ == "__main__":
    sys.exit(main())
