"""Reads what is known about a job, and tells it: ``trainmaster why`` and ``job.why()``."""

from trainmaster.client.connection import now
from trainmaster.client.evidence import events_of, output_of
from trainmaster.client.job_finder import FoundJob, JobFinder
from trainmaster.client.observation import observe
from trainmaster.client.story import failure_of, story


async def explain(finder: JobFinder, job: FoundJob) -> list[str]:
    """The lines of the story."""
    cluster, connection = finder.cluster, finder.connection
    observed = await observe(cluster, job)
    events = await events_of(cluster, job, observed)
    output = await output_of(cluster, job, failure_of(job, observed))
    kubectl = f"kubectl --kubeconfig {connection.kubeconfig}" if connection.kubeconfig else "kubectl"
    options = connection.options_of(job.key.namespace)
    return story(
        job, observed, events, now(), output=output, kubectl=kubectl, options=options, keeps_logs=connection.is_local
    )
