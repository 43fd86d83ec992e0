"""What the chart makes of the view: nothing by default; switched on a Service, a port, rights and a rule for readers."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.manifests.helm import configuration, render
from tests.manifests.test_chart import SERVICE, let_in

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("helm_is_here")]

VIEW = "extender.config.view.enabled=true"
SAMPLES = "extender.config.view.samples=true"
VIEWER = r"networkPolicy.viewers[0].namespaceSelector.matchLabels.kubernetes\.io/metadata\.name=ingress"
REVIEWS = {("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews")}


def objects(*settings: str) -> list[dict[str, Any]]:
    return [item for item in yaml.safe_load_all(render(*settings)) if item]


def created(*settings: str) -> set[tuple[str, str]]:
    """Return what the extender may create or list beyond what it may without these settings, by group and resource."""

    def rights(rendered: list[dict[str, Any]]) -> set[tuple[str, str]]:
        [role] = [
            item for item in rendered if (item["kind"], item["metadata"]["name"]) == ("ClusterRole", "gputopo-extender")
        ]
        return {
            (group, f"{verb} {resource}" if resource == "events" else resource)
            for rule in role["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

    return rights(objects(*settings)) - rights(objects())


def test_by_default_there_is_no_view() -> None:
    """Neither a port nor a Service nor a right."""
    rendered = render()
    assert "view" not in re.sub(r"tokenreviews?|#.*", "", rendered)


@pytest.mark.parametrize("form", [(), SERVICE], ids=["sidecar", "service"])
def test_the_view_is_a_service_to_the_pods_of_the_extender(form: tuple[str, ...]) -> None:
    """In both forms the Service finds the container's port by its name, and the configuration has the same port."""
    rendered = objects(VIEW, "extender.config.view.port=9001", *form)
    [service] = [item for item in rendered if item["metadata"]["name"] == "gputopo-view"]
    assert service["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": "view"}]
    [pods] = [
        item["spec"]["template"]
        for item in rendered
        if item["kind"] == "Deployment"
        and service["spec"]["selector"].items() <= item["spec"]["template"]["metadata"]["labels"].items()
    ]
    [extender] = [
        container
        for container in (*pods["spec"]["containers"], *pods["spec"].get("initContainers", ()))
        if container["name"] == "extender"
    ]
    assert {"name": "view", "containerPort": 9001} in extender["ports"]
    assert "--set=view.host=$(POD_IP)" in extender["args"]
    assert configuration(render(VIEW, *form), "extender.yaml")["view"] == {"enabled": True}


def test_the_view_has_the_rights_that_it_uses_and_no_others() -> None:
    """Where nobody is asked for a token, the extender may review none."""
    events = {("", "list events")}
    assert created(VIEW) == REVIEWS | events
    assert created(VIEW, "extender.config.view.authorization=none") == events


@pytest.mark.parametrize("settings", [(), (VIEW,), (VIEW, SAMPLES)])
def test_only_a_view_with_samples_may_fetch_what_agents_tell(settings: tuple[str, ...]) -> None:
    """From pods of its own namespace."""
    rules = [
        (item["kind"], rule["resources"], rule["verbs"])
        for item in objects(*settings)
        for rule in item.get("rules") or ()
        if "pods/proxy" in rule.get("resources", ())
    ]
    assert rules == ([("Role", ["pods/proxy"], ["get"])] if SAMPLES in settings else [])


@pytest.mark.parametrize("form", [(), SERVICE], ids=["sidecar", "service"])
def test_only_readers_that_are_named_reach_the_view(form: tuple[str, ...]) -> None:
    """By default nobody does, and readers reach no other port."""
    without, component = let_in(*form), "extender" if form else "scheduler"
    assert let_in(VIEW, *form) == without
    assert let_in(VIEWER, *form) == without
    admitted = let_in(VIEW, VIEWER, *form)
    assert admitted == {**without, component: {*without[component], ("view", "ingress")}}
