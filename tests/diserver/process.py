"""``python -m tests.diserver.process PORT``: a di-server with one job, over an API server in memory."""

import asyncio
import sys
from datetime import UTC, datetime

from tests.diserver.bench import Bench, Reviews
from tests.runtime.cluster import FakeCluster
from trainmaster.diserver.serve import ServerOptions, run_server


async def main(port: int) -> None:
    cluster, reviews = FakeCluster(), Reviews()
    bench = Bench(cluster, reviews, "")
    bench.job()
    bench.pod("cart-coordinator", ip="127.0.0.2")
    options = ServerOptions(bind_address=f"127.0.0.1:{port}", drain=0.0)
    await run_server(cluster, reviews, options, asyncio.Event(), now=lambda: datetime.now(UTC))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
