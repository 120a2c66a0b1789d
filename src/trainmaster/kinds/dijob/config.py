"""AggregatorConfig: where the template of aggregators comes from."""

import msgspec

from trainmaster.core import template
from trainmaster.core.errors import BadSpec, located
from trainmaster.core.nesting import TOO_DEEP
from trainmaster.core.wire import Template
from trainmaster.kinds.dijob.aggregatorconfig import AggregatorConfig


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
