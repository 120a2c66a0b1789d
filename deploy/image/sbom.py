"""The list of what is in the image, as SPDX 2.3."""

import datetime
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from deploy.image.base import Package
from deploy.image.environment import Wheel

_DOCUMENT, _IMAGE = "SPDXRef-DOCUMENT", "SPDXRef-image"


def sbom(version: str, digest: str, packages: Sequence[Package], wheels: Sequence[Wheel], epoch: int) -> dict[str, Any]:
    """The document about an image with this digest."""
    created = datetime.datetime.fromtimestamp(epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    image = _package(_IMAGE, "trainmaster", version, digest.partition(":")[2], f"pkg:oci/trainmaster@{quote(digest)}")
    parts = [
        _package(
            _identifier("deb", each.name, each.architecture),
            each.name,
            each.version,
            each.sha256,
            f"pkg:deb/debian/{each.name}@{quote(each.version)}?arch={each.architecture}",
        )
        for each in packages
    ]
    parts += [
        _package(
            _identifier("wheel", each.name),
            each.name,
            each.version,
            each.sha256,
            f"pkg:pypi/{each.name.lower().replace('_', '-')}@{each.version}",
        )
        for each in wheels
    ]
    contained = [
        {"spdxElementId": _IMAGE, "relationshipType": "CONTAINS", "relatedSpdxElement": part["SPDXID"]}
        for part in parts
    ]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": _DOCUMENT,
        "name": f"trainmaster-{version}",
        "documentNamespace": f"urn:trainmaster:{version}:{digest}",
        "creationInfo": {"created": created, "creators": ["Tool: trainmaster-deploy.image"]},
        "packages": [image, *parts],
        "relationships": [
            {"spdxElementId": _DOCUMENT, "relationshipType": "DESCRIBES", "relatedSpdxElement": _IMAGE},
            *contained,
        ],
    }


def _package(identifier: str, name: str, version: str, sha256: str, purl: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "SPDXID": identifier,
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}],
    }
    if sha256:
        body["checksums"] = [{"algorithm": "SHA256", "checksumValue": sha256}]
    return body


def _identifier(*words: str) -> str:
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", "-".join(words))
