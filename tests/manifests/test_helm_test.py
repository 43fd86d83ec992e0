"""What `helm test` runs: a pod with rights to read, and a program that reads."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from typer.testing import CliRunner

from extender.kubectl.cli import app
from tests.manifests.helm import CHART, helm

PROGRAM = CHART / "files" / "check_installation.py"


class Api(HTTPServer):
    """An API server with these Deployments and DaemonSets."""

    def __init__(self, **lists: list[dict[str, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.lists = lists
        self.asked: list[tuple[str, str | None, list[str]]] = []


class Answers(BaseHTTPRequestHandler):
    """Answer with a list, and note the request."""

    server: Api

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.server.asked.append((url.path, self.headers["Authorization"], parse_qs(url.query)["labelSelector"]))
        body = json.dumps({"items": self.server.lists[url.path.rsplit("/", 1)[-1]]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, *_: object) -> None:
        """Say nothing."""


def deployment(ready: int, updated: int = 2, observed: int = 3) -> dict[str, Any]:
    return {
        "metadata": {"name": "gputopo-scheduler", "generation": 3},
        "spec": {"replicas": 2},
        "status": {"readyReplicas": ready, "updatedReplicas": updated, "observedGeneration": observed},
    }


def daemon_set(ready: int) -> dict[str, Any]:
    return {
        "metadata": {"name": "gputopo-agent", "generation": 1},
        "spec": {},
        "status": {"numberReady": ready, "desiredNumberScheduled": 4, "observedGeneration": 1},
    }


def check(folder: Path, **lists: list[dict[str, Any]]) -> tuple[int, str, Api]:
    """Return the exit status of the program, what it printed, and the API server that it asked."""
    (folder / "token").write_text("secret")
    status = folder / "kubectl-gputopo"
    status.write_text('#!/bin/sh\necho "status $*"\n')
    status.chmod(0o755)
    with Api(**lists) as api:
        threading.Thread(target=api.serve_forever, daemon=True).start()
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM.read_text(), "--scheduler-name=mine"],
            env={
                "PATH": f"{folder}:{os.environ['PATH']}",
                "ACCOUNT": str(folder),
                "API_SERVER": f"http://127.0.0.1:{api.server_port}",
                "NAMESPACE": "ns",
                "RELEASE": "r",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        api.shutdown()
    return ended.returncode, ended.stdout + ended.stderr, api


@pytest.mark.slow
def test_an_installation_that_is_ready_is_asked_for_its_status(tmp_path: Path) -> None:
    """With the account of the pod, and for the pods of this release alone."""
    status, printed, api = check(tmp_path, deployments=[deployment(2)], daemonsets=[daemon_set(4)])
    assert (status, printed.splitlines()) == (
        0,
        [
            "gputopo-scheduler: 2 of 2 pods ready",
            "gputopo-agent: 4 of 4 pods ready",
            "status status --scheduler-name=mine",
        ],
    )
    selector = ["app.kubernetes.io/name=gputopo,app.kubernetes.io/instance=r"]
    assert api.asked == [
        (f"/apis/apps/v1/namespaces/ns/{kind}", "Bearer secret", selector) for kind in ("deployments", "daemonsets")
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deployments", "daemonsets"),
    [
        ([], [daemon_set(4)]),
        ([deployment(1)], [daemon_set(4)]),
        ([deployment(2, updated=1)], [daemon_set(4)]),
        ([deployment(2, observed=2)], [daemon_set(4)]),
        ([deployment(2)], [daemon_set(3)]),
    ],
)
def test_an_installation_that_is_not_ready_fails(
    tmp_path: Path, deployments: list[dict[str, Any]], daemonsets: list[dict[str, Any]]
) -> None:
    """Before its status is asked for."""
    status, printed, _ = check(tmp_path, deployments=deployments, daemonsets=daemonsets)
    assert status == 1
    assert printed.splitlines()[-1].startswith("not ready:")


@pytest.fixture(scope="module")
def hooks(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Give the objects of `helm test` by kind."""
    request.getfixturevalue("helm_is_here")
    text = helm(
        "template", "gputopo", CHART, "-n", "gputopo-system", "--set", "image.repository=gputopo",
        "--show-only", "templates/tests/installation.yaml",
    )  # fmt: skip
    return {item["kind"]: item for item in yaml.safe_load_all(text)}


@pytest.mark.slow
def test_the_pod_runs_the_program_with_rights_to_list_only(hooks: dict[str, Any]) -> None:
    """And nothing of it belongs to the release."""
    assert {item["metadata"]["annotations"]["helm.sh/hook"] for item in hooks.values()} == {"test"}
    [container] = hooks["Pod"]["spec"]["containers"]
    assert container["args"][0].strip() == PROGRAM.read_text().strip()
    rules = [*hooks["Role"]["rules"], *hooks["ClusterRole"]["rules"]]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"list"}
    assert hooks["Pod"]["spec"]["serviceAccountName"] == hooks["ServiceAccount"]["metadata"]["name"]


@pytest.mark.slow
def test_status_takes_the_options_of_the_pod(hooks: dict[str, Any]) -> None:
    """It then misses the kubeconfig, and complains of no option."""
    [container] = hooks["Pod"]["spec"]["containers"]
    ended = CliRunner().invoke(app, ["status", "--kubeconfig=/no-such-file", *container["args"][1:]])
    assert ended.exit_code == 2
    assert "/no-such-file" in ended.output and "No such option" not in ended.output
