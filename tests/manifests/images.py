"""The page on the chart: the images of the rendered copy, for clusters without access to other registries."""

from tests.manifests.helm import MANIFESTS
from tests.manifests.made_tables import MadeTables
from tests.manifests.objects import containers, pod_specs


def table() -> str:
    """Return a row for each image, with the containers that have it."""
    users: dict[str, set[str]] = {}
    for spec in pod_specs():
        for container in containers(spec):
            users.setdefault(container["image"], set()).add(container["name"])
    rows = [f"| `{image}` | {', '.join(sorted(names))} |" for image, names in sorted(users.items())]
    return "\n".join(("| image | containers |", "|---|---|", *rows, ""))


IMAGES = MadeTables(MANIFESTS.parent / "docs" / "reference" / "chart.md", {"images": table})
