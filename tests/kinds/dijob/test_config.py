import pytest

from tests.odd import MARK, VALUES, with_value
from trainmaster.core.errors import BadSpec
from trainmaster.kinds.dijob.config import aggregator_template


@pytest.mark.parametrize("value", [name for name in VALUES if name != "an object"])
def test_an_aggregatorconfig_that_cannot_be_read_is_told(value: str) -> None:
    with pytest.raises(BadSpec):
        aggregator_template(with_value({"spec": {"aggregator": {"template": MARK}}}, VALUES[value]))
