"""The labels of placeholders and the requests that remove them, for the extender and for `kubectl gputopo cleanup`."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from extender.kubernetes.rest import FIELD_MANAGER, Request

LABELS: Final = {"app.kubernetes.io/name": "gputopo-placeholder", "app.kubernetes.io/managed-by": FIELD_MANAGER}


def job_name(uid: str) -> str:
    """Return the name of the placeholder of a pod.

    >>> job_name("8f6b0c1e")
    'gputopo-8f6b0c1e'
    """
    return f"gputopo-{uid}"


def jobs(namespace: str) -> str:
    """Return the path of the Jobs of a namespace."""
    return f"/apis/batch/v1/namespaces/{quote(namespace, safe='')}/jobs"


def deletion(namespace: str, uid: str) -> Request:
    """Return the request that removes the placeholder of a pod, its own pod included."""
    return Request("DELETE", f"{jobs(namespace)}/{quote(job_name(uid), safe='')}?propagationPolicy=Background")
