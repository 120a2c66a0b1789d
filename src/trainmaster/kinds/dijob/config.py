"""Where the pod templates of a job come from: its spec, and for aggregators the AggregatorConfig."""

from functools import lru_cache

import msgspec

from trainmaster.core import template
from trainmaster.core.errors import BadSpec, located
from trainmaster.core.nesting import TOO_DEEP
from trainmaster.core.wire import Template
from trainmaster.kinds.dijob.address import spec_template
from trainmaster.kinds.dijob.aggregatorconfig import AggregatorConfig
from trainmaster.kinds.dijob.profile import AGGREGATOR
from trainmaster.kinds.dijob.types import DIJob


class Templates(msgspec.Struct, frozen=True):
    """The templates of one job."""

    job: DIJob
    aggregator: Template | None = None
    """None when the AggregatorConfig is missing or cannot be used."""

    def of(self, role: str) -> Template | None:
        return self.aggregator if role == AGGREGATOR else spec_template(self.job, role)


@lru_cache(maxsize=4)  # the same object for every job
def aggregator_template(config: bytes) -> Template:
    """Raises ``BadSpec`` when no pod can be made of it."""
    try:
        found = msgspec.json.decode(config, type=AggregatorConfig).spec.aggregator.template
    except ValueError as error:
        raise BadSpec(located(error)) from error
    except RecursionError as error:
        raise BadSpec(TOO_DEEP) from error
    if wrong := template.errors(found, "spec.aggregator.template"):
        raise BadSpec(*wrong)
    return found
