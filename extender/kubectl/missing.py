"""How the plugin says that there is no such node or pod, and which one may have been meant."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NoReturn

from extender.cluster.state import ClusterState
from extender.inspect.inspection import node_names
from extender.inspect.pods import namespaces_with, what_counts
from extender.kit.nearest import did_you_mean
from extender.kubectl import extender_client
from extender.kubectl.reading import say_no


def no_node(name: str, source: ClusterState | str) -> NoReturn:
    """End with a no.

    Args:
        name: Of a node that neither has GPUs nor a topology.
        source: The cluster, or the URL of an extender, which may raise `ExtenderUnavailable`.

    """
    names = (
        (node.name for node in extender_client.nodes(source).nodes) if isinstance(source, str) else node_names(source)
    )
    say_no(f"no node {name}{did_you_mean(name, names)}")


def no_pod(namespace: str, name: str, source: ClusterState | str, resource: str) -> NoReturn:
    """End with a no, which names the namespaces of such a pod, else the pod of this namespace that may have been meant.

    Args:
        namespace: Where there is no such pod.
        name: Its name.
        source: The cluster, or the URL of an extender, which may raise `ExtenderUnavailable`.
        resource: The one that counts GPUs.

    """
    if isinstance(source, str):
        elsewhere = extender_client.namespaces_with(source, name)
        names: Iterable[str] = (pod.name for pod in extender_client.pods(source, namespace).pods)
    else:
        elsewhere = namespaces_with(source, name)
        names = (pod.key[1] for pod in source.pods if pod.key[0] == namespace and not pod.stopped)
    whole, slices, shares = what_counts(resource)
    hint = _where(elsewhere) or did_you_mean(name, names)
    say_no(f"no pod {namespace}/{name} asks for {whole}, {slices} or {shares}{hint}")


def _where(namespaces: Collection[str]) -> str:
    return f"; there is one in {', '.join(namespaces)}: say -n {min(namespaces)}" if namespaces else ""
