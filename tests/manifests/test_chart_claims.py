"""What the chart makes where the extender allocates ResourceClaims: a class, rights and policies; nothing of that otherwise."""

import re
from typing import Any

import pytest
import yaml

from extender.features.dra.claim_spec import OUR_CLASSES
from extender.features.dra.guard import RESERVED
from tests.manifests.helm import HelmRefused, render
from tests.manifests.test_chart import rights_of_extender
from tests.manifests.test_chart_planner import PLANNER

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("helm_is_here")]

DRA = "extender.config.dra.enabled=true"
CLAIMS = (*PLANNER, DRA)


def named(*settings: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what the chart renders, by kind and name."""
    items = (item for item in yaml.safe_load_all(render(*settings)) if item)
    return {(item["kind"], item["metadata"]["name"]): item for item in items}


def test_without_it_nothing_is_made() -> None:
    assert named(*PLANNER).keys() == {key for key in named(*CLAIMS) if not _is_of_claims(*key)}


def test_the_classes_match_nothing() -> None:
    """kube-scheduler would allocate their claims otherwise."""
    classes = {name: item["spec"] for (kind, name), item in named(*CLAIMS).items() if kind == "DeviceClass"}
    assert classes == {name: {"selectors": [{"cel": {"expression": "false"}}]} for name in OUR_CLASSES}


def test_the_policy_refuses_with_the_words_by_which_the_extender_knows_it() -> None:
    """Another policy may refuse the same claim."""
    policy = named(*CLAIMS)["ValidatingAdmissionPolicy", "gputopo-reserved-classes"]
    assert [validation["message"] for validation in policy["spec"]["validations"]] == [RESERVED]


def test_the_extender_may_allocate_claims_and_create_them_in_its_namespace_alone() -> None:
    """These are all rights that it gets: for claims, of which one names no resource that the API server shows, and to preempt."""
    before, after = rights_of_extender(render(*PLANNER)), rights_of_extender(render(*CLAIMS))
    more = {resource: verbs for resource, verbs in after.items() if before.get(resource) != verbs}
    group = "resource.k8s.io"
    assert {resource: set(verbs) for resource, verbs in more.items()} == {
        (group, "resourceclaims"): {"get", "list", "watch", "patch"},
        (group, "resourceclaims/status"): {"patch"},
        (group, "resourceclaims/binding"): {"patch"},
        (group, "resourceslices"): {"list", "watch"},
        (group, "deviceclasses"): {"get", "list"},
        (group, "devicetaintrules"): {"create", "delete", "list"},
        ("policy", "poddisruptionbudgets"): {"list", "watch"},
    }
    role = named(*CLAIMS)["Role", "gputopo-extender-claims"]
    assert role["rules"] == [{"apiGroups": [group], "resources": ["resourceclaims"], "verbs": ["create"]}]


def test_beside_kube_scheduler_its_account_is_not_restricted() -> None:
    """It is kube-scheduler's, which allocates claims of all classes."""
    beside = named("extender.config.queue.enabled=true", DRA)
    assert ("ValidatingAdmissionPolicy", "gputopo-reserved-classes") in beside
    assert ("ValidatingAdmissionPolicy", "gputopo-extender-claims") not in beside
    assert ("ValidatingAdmissionPolicy", "gputopo-extender-device-taints") not in beside


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ((DRA,), "needs extender.config.queue.enabled"),
        ((*CLAIMS, "policies.enabled=false"), "extender.config.dra.unguarded=true"),
        ((*CLAIMS, "policies.claims.exemptNamespaces={gputopo-system}"), "where the extender tries the policy"),
    ],
)
def test_what_would_allocate_nothing_is_refused(settings: tuple[str, ...], advice: str) -> None:
    """With advice."""
    with pytest.raises(HelmRefused, match=re.escape(advice)):
        render(*settings)


def _is_of_claims(kind: str, name: str) -> bool:
    return kind == "DeviceClass" or name.endswith(
        ("-claims", "-claim-annotations", "-device-taints", "-reserved-classes")
    )
