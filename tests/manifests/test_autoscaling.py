"""What the chart adds where autoscaling is on."""

import pytest
import yaml

from tests.manifests.helm import configuration, render

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
    said = {"namespace": "gputopo-placeholders", "priorityClass": "gputopo-placeholder", "limit": 3, "after": "1m"}
    assert configuration(rendered, "extender.yaml")["autoscaling"] == {"enabled": True, **said}
