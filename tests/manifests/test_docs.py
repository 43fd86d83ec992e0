"""The documentation names what exists: all of it, and nothing else."""

import re
from pathlib import Path

from agent import metrics as agent_metrics
from extender import metrics as extender_metrics
from tests.manifests.helm import MANIFESTS
from topology.annotations import keys

DOCS = MANIFESTS.parent / "docs"
OURS = re.compile(r"(?:(?:topo|alloc)\.)?gputopo\.dev/[a-z-]*[a-z]|nvidia\.com/gpu(?![.\w])")


def first_cells(page: str) -> list[str]:
    """Return everything in backticks in the first cells of a page's tables."""
    rows = re.findall(r"^\| (`[^|]+) \|", (DOCS / page).read_text(), re.MULTILINE)
    return re.findall(r"`([^`]+)`", " ".join(rows))


def test_keys_page_lists_every_key_once() -> None:
    """Each constant of `topology.annotations.keys` has a row of its own."""
    known = [value for name, value in vars(keys).items() if name.isupper() and not name.endswith("_PREFIX")]
    assert sorted(cell for cell in first_cells("keys.md") if OURS.fullmatch(cell)) == sorted(known)


def test_no_page_names_a_key_that_does_not_exist() -> None:
    """Examples in the text are held to the same list, but for the misspelt one."""
    known = {value for name, value in vars(keys).items() if name.isupper()} | {"gputopo.dev/required-afinity"}
    for page in DOCS.glob("*.md"):
        named = set(OURS.findall(page.read_text().replace("\\", ""))) - {"config.gputopo.dev/v1alpha"}
        assert named <= known, page.name


def test_user_guide_explains_every_annotation() -> None:
    """By its name without the prefix."""
    text = (DOCS / "user-guide.md").read_text()
    users = [value for value in vars(keys).values() if str(value).startswith(keys.USER_PREFIX)]
    named = [
        key.removeprefix(keys.USER_PREFIX) for key in users if key not in (keys.USER_PREFIX, keys.GPU_MEMORY_RESOURCE)
    ]
    assert [name for name in named if f"`{name}`" not in text] == []


def test_operations_page_lists_exactly_the_metrics() -> None:
    """As both programs expose them from the start."""
    extender = extender_metrics.Metrics("digest").exposition().decode()
    agent = agent_metrics.Metrics("0").text().decode()
    exposed = set(re.findall(r"^# HELP (\w+)", extender + agent, re.MULTILINE))
    exposed |= {f"gputopo_{name}" for name in extender_metrics.GAUGES}
    documented = {cell.partition("{")[0] for cell in first_cells("operations.md") if cell.startswith("gputopo_")}
    assert documented == {name for name in exposed if not name.endswith("_created")}


def test_pages_link_to_files_that_exist() -> None:
    """Relative links only; the others are somebody else's."""
    for page in [*DOCS.glob("*.md"), DOCS.parent / "README.md"]:
        links = [link for link in re.findall(r"\]\(([^)#]+)", page.read_text()) if "://" not in link]
        assert [link for link in links if not (page.parent / link).exists()] == [], page.name


def test_examples_named_in_the_documentation_exist() -> None:
    """A path that somebody copies has to lead somewhere."""
    for page in DOCS.glob("*.md"):
        named = re.findall(r"manifests/[\w./-]+\.yaml", page.read_text())
        assert [path for path in named if not Path(MANIFESTS.parent, path).exists()] == [], page.name
