"""The command: python -m deploy.image [--base BASE] [--out FOLDER]"""

import argparse
import sys
from pathlib import Path

from deploy.image.base import ImageFailed
from deploy.image.build import build


def main() -> int:
    """0 when the image is written, 1 with one sentence when not."""
    parser = argparse.ArgumentParser(prog="python -m deploy.image", description="Build the image without docker.")
    parser.add_argument("--base", type=Path, help="a root file system (tar) or an OCI layout; else Debian's packages")
    parser.add_argument("--out", type=Path, default=Path("dist"), help="the folder of the results (dist)")
    arguments = parser.parse_args()
    try:
        built = build(arguments.out, arguments.base)
    except ImageFailed as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    print(f"{built.archive}\n{built.sbom}\n{built.digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
