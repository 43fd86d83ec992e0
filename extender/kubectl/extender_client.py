"""Asks a running extender over HTTP what it knows and would decide: with its holds, and the values that it has learnt.

For people at a terminal: one question at a time, and no retries.
"""

from __future__ import annotations

from http.client import HTTPException
from ssl import SSLCertVerificationError
from typing import Final, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from extender.features.queue.listing import QueueReport
from extender.inspect.control_plane import ExtenderInfo
from extender.inspect.inspection import Explanation, NodeDetail, NodeInfo, NodeList, NodePage, PodInfo
from extender.inspect.measured import MeasuredReport
from extender.inspect.pods import PodList, PodPage
from extender.inspect.why import NodeVerdict, Why

Shown = TypeVar("Shown", NodePage, NodeDetail, PodPage, Explanation, Why, MeasuredReport, QueueReport, ExtenderInfo)

_SECONDS: Final = 5.0


class ExtenderUnavailable(Exception):
    """The extender cannot be asked, or does not know the cluster yet; the text says why."""


def nodes(url: str) -> NodeList:
    """Return all nodes with GPUs, page by page; raises `ExtenderUnavailable`."""
    infos: list[NodeInfo] = []
    after: str | None = ""
    while after is not None:
        page = _get(url, f"nodes?{urlencode({'limit': 200, 'after': after})}", NodePage)
        if page is None:
            raise ExtenderUnavailable("it has no such page")
        infos += page.nodes
        after = page.next
    return NodeList(nodes=tuple(infos))


def node(url: str, name: str) -> NodeDetail | None:
    """Return one node, `None` where it is not known; raises `ExtenderUnavailable`."""
    return _get(url, f"nodes/{quote(name, safe='')}", NodeDetail)


def explain(url: str, namespace: str, name: str) -> Explanation | None:
    """Return where a pod could go and why not elsewhere, `None` where it is not known; raises `ExtenderUnavailable`."""
    return _get(url, f"pods/{quote(namespace, safe='')}/{quote(name, safe='')}", Explanation)


def pods(url: str, namespace: str | None) -> PodList:
    """Return the pods of a namespace, `None` for all, page by page; raises `ExtenderUnavailable`."""
    infos: list[PodInfo] = []
    after: str | None = f"{namespace}/" if namespace else ""
    while after is not None:
        page = _get(url, f"pods?{urlencode({'limit': 200, 'after': after})}", PodPage)
        if page is None:
            raise ExtenderUnavailable("it has no such page")
        wanted = [pod for pod in page.pods if namespace in (None, pod.namespace)]
        infos += wanted
        after = page.next if len(wanted) == len(page.pods) else None
    return PodList(pods=tuple(infos))


def namespaces_with(url: str, name: str) -> tuple[str, ...]:
    """Return where there are pods with GPUs that are called so; raises `ExtenderUnavailable`."""
    namespaces: set[str] = set()
    after: str | None = ""
    while after is not None:
        page = _get(url, f"pods?{urlencode({'limit': 200, 'q': f'/{name}', 'after': after})}", PodPage)
        if page is None:
            raise ExtenderUnavailable("it has no such page")
        namespaces |= {pod.namespace for pod in page.pods if pod.name == name}
        after = page.next
    return tuple(sorted(namespaces))


def why(url: str, namespace: str, name: str, node: str = "") -> Why | None:
    """Return what each node says to a pod, page by page, `None` where the pod is not known; raises `ExtenderUnavailable`."""
    verdicts: list[NodeVerdict] = []
    after: str | None = ""
    while True:
        query = urlencode({"limit": 200, "node": node, "after": after})
        page = _get(url, f"pods/{quote(namespace, safe='')}/{quote(name, safe='')}/why?{query}", Why)
        if page is None:
            return None
        verdicts += page.nodes
        after = page.next
        if after is None:
            return page.model_copy(update={"nodes": tuple(verdicts)})


def what_if(url: str, pod: bytes) -> Explanation:
    """Return where this pod, as JSON, could go if it were created, and why not elsewhere; raises `ExtenderUnavailable`."""
    return _answer(url, "what-if", Explanation, pod)


def measured(url: str) -> MeasuredReport:
    """Return what is measured beside what is predicted; raises `ExtenderUnavailable`."""
    return _answer(url, "measured", MeasuredReport)


def queue(url: str) -> QueueReport:
    """Return the pods behind our scheduling gate; raises `ExtenderUnavailable`, also where it is older than the question."""
    return _answer(url, "queue", QueueReport)


def extender(url: str) -> ExtenderInfo:
    """Return what it says of itself; raises `ExtenderUnavailable`, also where it is older than the question."""
    return _answer(url, "extender", ExtenderInfo)


def _answer(url: str, path: str, form: type[Shown], body: bytes | None = None) -> Shown:
    """Return what every extender has that knows the path; raises `ExtenderUnavailable`."""
    answer = _get(url, path, form, body)
    if answer is None:
        raise ExtenderUnavailable("it does not know the question")
    return answer


def _get(url: str, path: str, form: type[Shown], body: bytes | None = None) -> Shown | None:
    """Return what is there, `None` where the extender says that there is no such thing; a body is posted."""
    if not url.startswith(("http://", "https://")):
        raise ExtenderUnavailable(f"{url} is not an http:// or https:// URL")
    address, headers = f"{url.rstrip('/')}/v1/inspect/{path}", {"Accept": "application/json"}
    request = Request(address, body, headers)  # noqa: S310 - as above
    try:
        with urlopen(request, timeout=_SECONDS) as response:  # noqa: S310 - as above
            return form.model_validate_json(response.read())
    except HTTPError as error:
        if error.code == 404 and _says_no(error):
            return None
        raise ExtenderUnavailable(f"status {error.code}") from error
    except (OSError, HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, URLError) and isinstance(error.reason, OSError) else error
        if isinstance(cause, SSLCertVerificationError):
            raise ExtenderUnavailable(f"its certificate cannot be verified: {cause.verify_message}") from error
        why = cause.strerror if isinstance(cause, OSError) else None
        raise ExtenderUnavailable(why or str(cause) or type(cause).__name__) from error


def _says_no(error: HTTPError) -> bool:
    """Whether an extender has answered, and not just any server that knows nothing."""
    try:
        return b'"no such ' in error.read()
    except (OSError, HTTPException):
        return False
