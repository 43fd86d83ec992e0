"""What the chart adds where autoscaling is on."""

import pytest
import yaml

from tests.manifests.helm import configuration, render
from tests.manifests.test_chart_planner import PLANNER

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("helm_is_here")]


@pytest.mark.parametrize("form", ["extender.service.enabled=false", "extender.service.enabled=true"])
def test_the_extender_may_create_placeholders_only_where_it_is_to(form: str) -> None:
    """Off by default; switched on, the extender may create and delete Jobs in one namespace that has nothing else."""
    secrets = ("extender.service.serverSecret=s", "extender.service.clientSecret=c")
    without = render(form, *secrets)
    assert not any(word in without for word in ("placeholder", "autoscaling", "batch"))
    more = ("extender.autoscaling.enabled=true", "extender.autoscaling.limit=3", "extender.config.autoscaling.after=1m")
    rendered = render(form, *secrets, *more)
    added = {
        document["kind"]: document
        for document in yaml.safe_load_all(rendered)
        if document and "placeholder" in document["metadata"]["name"]
    }
    assert added.keys() == {"Namespace", "PriorityClass", "ResourceQuota", "Role", "RoleBinding"}
    assert added["Role"]["metadata"]["namespace"] == added["Namespace"]["metadata"]["name"] == "gputopo-placeholders"
    assert added["Role"]["rules"] == [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "delete"]}]
    [subject] = added["RoleBinding"]["subjects"]
    assert subject["name"] == ("gputopo-extender" if "true" in form else "gputopo-scheduler")
    assert (added["PriorityClass"]["value"], added["PriorityClass"]["preemptionPolicy"]) == (-10, "Never")
    assert added["ResourceQuota"]["spec"]["hard"] == {"count/jobs.batch": "3"}
    assert "resourceclaimtemplates" not in rendered
    said = {"namespace": "gputopo-placeholders", "priorityClass": "gputopo-placeholder", "limit": 3, "after": "1m"}
    assert configuration(rendered, "extender.yaml")["autoscaling"] == {"enabled": True, **said}


def test_placeholders_have_claims_of_nvidias_class_only_where_claims_are_allocated() -> None:
    """The policy that reserves the class lets them pass in their own namespace, and no other policy gates their pods."""
    dra = (*PLANNER, "extender.config.dra.enabled=true", "policies.claims.gateTemplates=gpu")
    on = (*dra, "extender.autoscaling.enabled=true", "extender.autoscaling.limit=3")
    assert "gputopo-placeholder" not in render(*dra)
    documents = {
        (document["kind"], document["metadata"]["name"]): document
        for document in yaml.safe_load_all(render(*on))
        if document
    }
    rules = documents["Role", "gputopo-placeholder"]["rules"]
    assert rules[1:] == [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaimtemplates"], "verbs": ["create"]}
    ]
    assert documents["ResourceQuota", "gputopo-placeholder"]["spec"]["hard"] == {
        "count/jobs.batch": "3",
        "count/resourceclaimtemplates.resource.k8s.io": "6",
    }
    reserved = documents["ValidatingAdmissionPolicy", "gputopo-reserved-classes"]["spec"]["matchConstraints"]
    (term,) = reserved["namespaceSelector"]["matchExpressions"]
    assert (term["operator"], term["values"]) == ("NotIn", ["gputopo-placeholders"])
    conditions = documents["MutatingAdmissionPolicy", "gputopo-claim-gate"]["spec"]["matchConditions"]
    assert "request.namespace != 'gputopo-placeholders'" in [condition["expression"] for condition in conditions]
