"""`python -m tests.manifests` writes what is made of the chart anew; with `--check` it only says whether that would change it."""

import sys

from tests.manifests import schema
from tests.manifests.command_line import COMMAND_LINE
from tests.manifests.helm import HelmUnavailable
from tests.manifests.images import IMAGES
from tests.manifests.metrics_page import METRICS
from tests.manifests.readme import README
from tests.manifests.rendered import outdated, write
from tests.manifests.settings import SETTINGS

PAGES = (README, SETTINGS, METRICS, COMMAND_LINE)
COPIES = (IMAGES,)
"""Pages with tables that are made of the rendered copy."""


def main(arguments: list[str]) -> int:
    """Return the exit status: 0 when the copy is true or could not be checked, 1 when it is not, 2 for bad usage."""
    try:
        match arguments:
            case []:
                schema.write()
                for each in PAGES:
                    each.write()
                write()
                for page in COPIES:
                    page.write()
            case ["--check"]:
                if schema.outdated():
                    print(f"{schema.FILE}: a description is not the comment in values.yaml; run `make manifests`")
                    return 1
                if pages := [str(each.page) for each in (*PAGES, *COPIES) if each.outdated()]:
                    print(f"{', '.join(pages)}: a table is not what it is made of; run `make manifests`")
                    return 1
                if names := outdated():
                    print(f"{', '.join(names)}: not what the chart gives; run `make manifests`")
                    return 1
            case _:
                print("usage: python -m tests.manifests [--check]", file=sys.stderr)
                return 2
    except HelmUnavailable as reason:
        print(f"manifests/rendered not {'checked' if arguments else 'written'}: {reason}", file=sys.stderr)
        return 0 if arguments else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
