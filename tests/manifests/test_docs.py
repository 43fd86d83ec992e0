"""The documentation names what exists: all of it, and nothing else."""

import re
from pathlib import Path

import pytest

from agent import metrics as agent_metrics
from extender.binding.outcome import Failure
from extender.features.registry import DECLARATIONS
from extender.kit.configuration import API_VERSION
from extender.telemetry.core import API_REQUESTS, REQUEST_SECONDS, VERDICTS_BY_VERB
from extender.telemetry.metrics import Metrics, SeriesKind
from tests.manifests.helm import MANIFESTS
from topology.annotations import keys
from topology.request.gpu_request import Communication

DOCS = MANIFESTS.parent / "docs"
FRONT = [
    DOCS.parent / f"{name}.md"
    for name in ("README", "CONTRIBUTING", "SECURITY", "MAINTAINERS", "ROADMAP", "CODE_OF_CONDUCT")
]
OF_DEVELOPERS = [DOCS.parent / name for name in ("tests/README.md", "benchmarks/RESULTS.md")]
PAGES = [*DOCS.rglob("*.md"), *OF_DEVELOPERS]
OURS = re.compile(r"(?:(?:topo|alloc)\.)?gputopo\.dev/[A-Za-z-]*[a-z]|nvidia\.com/gpu(?![.\w])")


def first_cells(page: str) -> list[str]:
    """Return everything in backticks in the first cells of a page's tables."""
    rows = re.findall(r"^\| (`[^|]+) \|", (DOCS / page).read_text(), re.MULTILINE)
    return re.findall(r"`([^`]+)`", " ".join(rows))


def test_annotations_page_lists_every_key_once() -> None:
    """Each constant of `topology.annotations.keys` has a row of its own."""
    known = [value for name, value in vars(keys).items() if name.isupper() and not name.endswith("_PREFIX")]
    assert sorted(cell for cell in first_cells("reference/annotations.md") if OURS.fullmatch(cell)) == sorted(known)


def test_no_page_names_a_key_that_does_not_exist() -> None:
    """Examples in the text are held to the same list, but for the misspelt one."""
    known = {value for name, value in vars(keys).items() if name.isupper()} | {"gputopo.dev/required-afinity"}
    for page in PAGES:
        named = set(OURS.findall(page.read_text().replace("\\", "").replace(API_VERSION, "")))
        assert named <= known, page.name


def test_user_guide_explains_every_annotation() -> None:
    """By its name without the prefix, but for what is no annotation of pods."""
    text = (DOCS / "how-to" / "request-nvlink.md").read_text()
    of_nodes = (keys.GPU_HEALTH, keys.PAUSE, keys.GPUS_HEALTHY)
    conditions = (keys.PLANNED_CONDITION,)
    others = (keys.USER_PREFIX, keys.SHARE_RESOURCE, keys.PLACEHOLDER_FOR, *of_nodes, *conditions)
    users = [value for value in vars(keys).values() if str(value).startswith(keys.USER_PREFIX)]
    named = [key.removeprefix(keys.USER_PREFIX) for key in users if key not in others]
    assert [name for name in named if f"`{name}`" not in text] == []


def test_pages_list_exactly_the_metrics() -> None:
    """As both programs expose them from the start, each once."""
    extender = Metrics("digest", DECLARATIONS).exposition().decode()
    of_agent = agent_metrics.AgentMetrics("0")
    of_agent.watch(list)
    of_agent.watch_activity(list)
    of_agent.watch_holders(list)
    agent = of_agent.text().decode()
    exposed = set(re.findall(r"^# HELP (\w+)", extender + agent, re.MULTILINE))
    exposed |= {declaration.name for declaration in DECLARATIONS if declaration.kind is SeriesKind.READ}
    page = (DOCS / "reference" / "metrics.md").read_text()
    documented = re.findall(r"^- `(gputopo_\w+)", page, re.MULTILINE)
    assert sorted(documented) == sorted(name for name in exposed if not name.endswith("_created"))


def test_the_metrics_page_explains_every_value_of_a_label() -> None:
    """Those that exist from the start, but for the requests of the bind protocol, its failures, and what requests may name."""
    page = (DOCS / "reference" / "metrics.md").read_text()
    # API_REQUESTS has names of classes, for developers; REQUEST_SECONDS has the verbs themselves. BANDWIDTH_RATIO stays in, but
    # its only values are those of `Communication`, which the page of annotations explains.
    values = {
        value
        for declaration in DECLARATIONS
        if declaration not in (API_REQUESTS, REQUEST_SECONDS)
        for row in declaration.values
        for value in row
    }
    obvious = {*VERDICTS_BY_VERB, *Failure, *Communication, "nodes", "pods", "resourceclaims", "resourceslices"}
    assert [value for value in sorted(values - obvious) if f"`{value}`" not in page] == []


def test_pages_link_to_files_that_exist() -> None:
    """Relative links only; the others are somebody else's. `make docs` looks at the anchors inside docs/ as well."""
    for page in [*PAGES, *FRONT]:
        links = [link for link in re.findall(r"\]\(([^)#]+)", page.read_text()) if "://" not in link]
        assert [link for link in links if not (page.parent / link).exists()] == [], page.name


@pytest.mark.parametrize("answer", ["benchmarks", "install", "pod-pending", "upgrade", "share-a-gpu"])
def test_the_readme_links_to_the_answers_of_the_first_questions(answer: str) -> None:
    """Whether you need it, how to install and upgrade it, why a pod is pending, and how to share a GPU."""
    assert re.search(rf"\]\(docs/[\w-]+/{answer}\.md\)", (DOCS.parent / "README.md").read_text())


def test_the_index_links_to_every_page() -> None:
    """A page that it leaves out is found by its name only."""
    linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", (DOCS / "index.md").read_text()))
    assert {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"index.md"} == linked


def test_front_pages_link_to_headings_that_exist() -> None:
    """Inside docs/ it is `make docs` that looks."""
    for page in [*FRONT, *OF_DEVELOPERS]:
        for link, anchor in re.findall(r"\]\(([\w./-]+)#([\w-]+)\)", page.read_text()):
            headings = re.findall(r"^#+ (.*)", (page.parent / link).read_text(), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings]


def test_test_files_named_in_the_documentation_exist() -> None:
    """Named from the root or, in tables, from tests/."""
    root = DOCS.parent
    for page in PAGES:
        named = re.findall(r"`((?:\w+/)+test_\w+\.py)\b", page.read_text())
        assert [path for path in named if not (root / path).exists() and not (root / "tests" / path).exists()] == [], (
            page
        )


def test_examples_named_in_the_documentation_exist() -> None:
    """A path that somebody copies has to lead somewhere."""
    for page in PAGES:
        named = re.findall(r"manifests/[\w./-]+\.yaml", page.read_text())
        assert [path for path in named if not Path(MANIFESTS.parent, path).exists()] == [], page.name


def test_pages_named_anywhere_exist() -> None:
    """In code, manifests and the Makefile, by their path from the root."""
    folders = [DOCS.parent / name for name in ("agent", "benchmarks", "extender", "manifests", "tests", "topology")]
    files = [
        file for folder in folders for file in folder.rglob("*") if file.suffix in {".py", ".yaml", ".tpl", ".txt"}
    ]
    for file in [*files, *FRONT, DOCS.parent / "Makefile"]:
        named = re.findall(r"(?:docs/[\w/-]+|tests/README|benchmarks/RESULTS)\.md", file.read_text())
        assert [page for page in named if not Path(DOCS.parent, page).exists()] == [], file


def test_contributing_names_files_that_exist() -> None:
    """Every path in backticks."""
    quoted = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", Path(DOCS.parent, "CONTRIBUTING.md").read_text())
    named = [word for words in quoted for word in words.split() if "/" in word or word.endswith((".md", ".toml"))]
    named = [path for path in named if not path.startswith("~")]
    assert len(named) > 20
    assert [path for path in named if not Path(DOCS.parent, path).exists()] == []
