"""What an operator's /metrics says, as numbers."""

from prometheus_client.parser import text_string_to_metric_families


class Metrics:
    """One answer of /metrics."""

    def __init__(self, text: str) -> None:
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    @property
    def names(self) -> set[str]:
        return {sample.name for sample in self._samples}

    def total(self, name: str, /, **labels: str) -> float:
        """The sum of all samples of this name that have these labels."""
        return sum(
            sample.value for sample in self._samples if sample.name == name and labels.items() <= sample.labels.items()
        )
