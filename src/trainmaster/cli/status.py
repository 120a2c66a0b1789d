"""``trainmaster status``: one job and its replicas."""

from typing import TYPE_CHECKING, Any

import click

from trainmaster.cli.connection import takes_cluster
from trainmaster.cli.list_jobs import FORMAT
from trainmaster.client.connection import Place, now

if TYPE_CHECKING:
    from trainmaster.client.job_finder import JobFinder
    from trainmaster.client.job_row import Row
    from trainmaster.client.run_model import Replica

HEAD = ("REPLICA", "STATE", "RESTARTS", "AGE", "POD", "REASON")

JOB = click.argument("job", metavar="JOB")


@click.command()
@JOB
@FORMAT
@takes_cluster
def status(place: Place, job: str, form: str) -> None:
    """Show the state of a job and of each of its replicas.

    JOB is NAME, KIND/NAME or NAMESPACE/NAME.

    \b
    Example:
      trainmaster status mnist
      trainmaster status aitrainingjob/mnist --format json
    """
    from trainmaster.client.job_finder import with_finder
    from trainmaster.client.text import to_json

    row, replicas = with_finder(place, lambda finder: _read(finder, job))
    click.echo(to_json(_document(row, replicas)) if form == "json" else _text(row, replicas))


async def _read(finder: "JobFinder", name: str) -> "tuple[Row, tuple[Replica, ...]]":
    from trainmaster.client.job_row import row_of
    from trainmaster.client.observation import model_of, pods_of

    found = await finder.find(name)
    pods = await pods_of(finder.cluster, [found])
    model = await model_of(finder.cluster, found)
    (shown,) = model.jobs
    return row_of(found, pods.get(found.view.uid, ())), shown.replicas


def _document(row: "Row", replicas: "tuple[Replica, ...]") -> dict[str, Any]:
    import msgspec

    shown = ("name", "pod", "state", "why", "restarts", "since", "until")
    return {
        **msgspec.structs.asdict(row),
        "replicas": [{name: getattr(replica, name) for name in shown} for replica in replicas],
    }


def _text(row: "Row", replicas: "tuple[Replica, ...]") -> str:
    from trainmaster.client.job_row import ready
    from trainmaster.client.text import age, duration, printable, table, terminal_width

    state = f"{row.phase}, {ready(row)} ready"
    if row.ended and row.created:
        state = f"{row.phase} after {duration(row.created, row.ended)}"
    head = f"{row.kind}/{row.name} in namespace {row.namespace}: {state}, "
    lines = [printable(f"{head}{row.restarts} restarts, {age(row.created, now())} old")]
    if row.cause:
        lines.append(printable(row.message))
    if replicas:
        rows = [(r.name, r.state, str(r.restarts), age(r.since, r.until or now()), r.pod, r.why) for r in replicas]
        lines.append(table(HEAD, rows, terminal_width()))
    return "\n".join(lines)
