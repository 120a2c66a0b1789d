"""The digests by which the data of ConfigMaps is compared. A store keeps them in the place of the data."""

from collections.abc import Mapping
from hashlib import blake2b


def digests(data: Mapping[str, str]) -> dict[str, str]:
    """A digest for each key. The data that a kind wants and the data that the API server has give the same ones."""
    return {name: blake2b(text.encode(), digest_size=16).hexdigest() for name, text in data.items()}
