"""Check an installation for `helm test`: its pods are ready, and `kubectl gputopo status` names nothing to do."""

import json
import os
import ssl
import sys
import urllib.parse
import urllib.request
from pathlib import Path

SECONDS = 10


def workloads(kind: str) -> list[dict]:
    """Return the release's Deployments or DaemonSets."""
    account = Path(os.environ.get("ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
    server = os.environ.get("API_SERVER", "https://kubernetes.default.svc")
    selector = urllib.parse.quote(f"app.kubernetes.io/name=gputopo,app.kubernetes.io/instance={os.environ['RELEASE']}")
    url = f"{server}/apis/apps/v1/namespaces/{os.environ['NAMESPACE']}/{kind}?labelSelector={selector}"
    headers = {"Authorization": f"Bearer {(account / 'token').read_text()}"}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the API server's own address
    context = ssl.create_default_context(cafile=account / "ca.crt") if server.startswith("https:") else None
    with urllib.request.urlopen(request, timeout=SECONDS, context=context) as answer:  # noqa: S310
        return json.load(answer)["items"]


def pods(workload: dict) -> tuple[int, int]:
    """Return how many pods are ready, which the kubelet learns from `/readyz`, and how many should be."""
    status = workload.get("status", {})
    if "replicas" in workload["spec"]:
        return min(status.get("readyReplicas", 0), status.get("updatedReplicas", 0)), workload["spec"]["replicas"]
    return status.get("numberReady", 0), status.get("desiredNumberScheduled", 0)


def main() -> int:
    """Print each workload, then the status; return 1 where pods are missing."""
    deployments = workloads("deployments")
    faults = 0 if deployments else 1
    for workload in (*deployments, *workloads("daemonsets")):
        ready, wanted = pods(workload)
        seen = workload.get("status", {}).get("observedGeneration") == workload["metadata"]["generation"]
        faults += ready < wanted or not seen
        print(f"{workload['metadata']['name']}: {ready} of {wanted} pods ready", flush=True)
    if faults:
        print("not ready: see kubectl get pods, and the logs of pods that are not Ready", flush=True)
        return 1
    command = ["kubectl-gputopo", "status", *sys.argv[1:]]
    return os.execvp(command[0], command)  # noqa: S606 - there is nothing for a shell to do


if __name__ == "__main__":
    sys.exit(main())
