"""The configuration is one versioned document; whatever is wrong in it is said with its path."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.objects.health_signs import HealthWords
from extender.cluster.objects.kinds import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from extender.config.document import ExtenderConfiguration
from extender.core.feature import Feature
from extender.features.configuration import WholeConfiguration, document_of, load
from extender.kit.configuration import ConfigurationError
from extender.kit.settings import Section
from topology.request.domains import DOMAIN_LABELS, GroupSource, Level
from topology.value.score import Weights

HEADER = "apiVersion: config.gputopo.dev/v1alpha1\nkind: ExtenderConfiguration\n"


def document(tmp_path: Path, text: str, header: str = HEADER) -> Path:
    file = tmp_path / "extender.yaml"
    file.write_text(header + text)
    return file


def test_defaults_are_a_loopback_sidecar() -> None:
    """Nothing has to be configured next to a scheduler in the same pod."""
    config = load(None, {}, {})
    assert (config.listen.host, config.listen.port, config.scheduling.candidates) == ("127.0.0.1", 8888, 16)


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    """Each level is seen where no higher one speaks."""
    file = document(tmp_path, "scheduling: {candidates: 1, bindDeadline: 1s, hold: 5s}")
    environment = {"GPUTOPO_SCHEDULING_CANDIDATES": "2", "GPUTOPO_SCHEDULING_BIND_DEADLINE": "2s"}
    scheduling = load(file, environment, {"scheduling.candidates": "3"}).scheduling
    assert (scheduling.candidates, scheduling.bind_deadline, scheduling.hold) == (3, 2.0, 5.0)
    assert scheduling.weights == Weights()


def test_labels_of_one_level_leave_those_of_the_others_alone() -> None:
    """Who names racks in a way of their own still has cliques and blocks."""
    labels = load(None, {}, {"scheduling.domainLabels": "{rack: [example.com/rack]}"}).scheduling.domain_labels
    assert labels == {**DOMAIN_LABELS, Level.RACK: ("example.com/rack",)}


def test_whose_groups_count_can_be_chosen() -> None:
    """Those of all programs by default; an unknown one is refused with its path."""
    assert load(None, {}, {}).groups.sources == tuple(GroupSource)
    assert load(None, {}, {"groups.sources": "[kueue, job]"}).groups.sources == (GroupSource.KUEUE, GroupSource.JOB)
    assert load(None, {}, {"groups.sources": "[]"}).groups.sources == ()
    with pytest.raises(ConfigurationError, match=r"groups\.sources\.0"):
        load(None, {}, {"groups.sources": "[slurm]"})


def test_words_of_other_health_agents_can_be_added_and_made_to_close() -> None:
    """By default there are none of either kind; a condition without a status means the one that is bad."""
    lists = "{conditions: [FansReady=False, AcceleratedHardwareReady], taints: [example.com/sick]}"
    words = HealthWords(load(None, {}, {"nodeHealth.close": lists}).node_health.words)
    conditions = [NodeCondition("FansReady", "False"), NodeCondition("AcceleratedHardwareReady", "False")]
    sick = Node(status=NodeStatus(None, conditions), spec=NodeSpec([Taint("example.com/sick", "NoExecute")]))
    assert [sign.closes for sign in words.signs(sick)] == [
        "closed by condition AcceleratedHardwareReady=False",
        "closed by condition FansReady=False",
        "closed by taint example.com/sick",
    ]
    assert [sign.closes for sign in HealthWords(load(None, {}, {}).node_health.words).signs(sick)] == [None]


@pytest.mark.parametrize("text", ["''", "'=True'", "' X'", "':NoSchedule'"])
def test_a_word_without_a_name_is_refused_with_its_path(text: str) -> None:
    """It would fit nothing, or everything."""
    with pytest.raises(ConfigurationError, match=r"nodeHealth\.close\.conditions\.0"):
        load(None, {}, {"nodeHealth.close.conditions": f"[{text}]"})


def test_a_level_that_there_is_not_is_refused_with_its_path() -> None:
    """A typo would leave groups without racks."""
    with pytest.raises(ConfigurationError, match=r"scheduling\.domainLabels\.row"):
        load(None, {}, {"scheduling.domainLabels": "{row: [example.com/row]}"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("listen: {prot: 1}", "listen.prot: unknown key"),
        ("listen: {port: 70000}", "listen.port: Input should be less than or equal to 65535"),
        ("watch: {backoff: 5}", "watch.backoff: not a duration such as 500ms, 5s or 1m30s"),
        ("watch: {silence: 10s}", "watch: silence must be longer than stream"),
        ("watch: {maxPage: 12MiB}", "watch: maxPage must be larger than maxLine"),
        ("scheduling: {bindDeadline: 30s}", "scheduling: hold must be longer than bindDeadline, or GPUs are offered"),
        ("listen: {host: 10.0.0.1}", "listen.host is not a loopback address, which takes tls.certFile"),
        ("tls: {certFile: a, keyFile: b}", "tls: certFile, keyFile and clientCaFile go together"),
        ("tls: {cert_file: a}", "tls.cert_file: unknown key"),
        ("limits: {bindBody: many}", "limits.bindBody: "),
        ("scheduling: {demand: {many: 1}}", "scheduling.demand.many"),
        ("listen: [", "while parsing"),
    ],
)
def test_names_file_path_and_reason(tmp_path: Path, text: str, problem: str) -> None:
    """A typing error is found by reading one line."""
    file = document(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        load(file, {}, {})
    assert str(caught.value).startswith(f"{file}: ")
    assert problem in str(caught.value)


@pytest.mark.parametrize("header", ["", "apiVersion: config.gputopo.dev/v9\nkind: ExtenderConfiguration\n", "- 1\n"])
def test_refuses_other_documents(tmp_path: Path, header: str) -> None:
    """A document says what it is and in which version."""
    with pytest.raises(ConfigurationError, match=r"apiVersion: must be|not a mapping"):
        load(document(tmp_path, "# nothing else\nlisten: {}" if not header.startswith("-") else "", header), {}, {})


def test_refuses_a_missing_file(tmp_path: Path) -> None:
    """The defaults are not a substitute for a file that was asked for."""
    with pytest.raises(ConfigurationError, match=r"absent\.yaml: No such file"):
        load(tmp_path / "absent.yaml", {}, {})


@pytest.mark.parametrize("setting", ["listen.prot", "apiVersion.x", "listen"])
def test_refuses_unknown_settings(setting: str) -> None:
    """`--set` follows the same schema."""
    with pytest.raises(ConfigurationError, match=setting.split(".", maxsplit=1)[0]):
        load(None, {}, {setting: "1"})


def test_reports_every_problem_at_once() -> None:
    """Nobody wants to fix a file one error at a time."""
    with pytest.raises(ConfigurationError) as caught:
        load(None, {}, {"listen.port": "x", "watch.pageSize": "0"})
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.slow
@given(
    st.integers(0, 1000),
    st.sampled_from(["3001ms", "3s250ms", "4s", "5.5s", "90s", "1m30s", "2h"]),
    st.sampled_from([1, "64KiB", "4MiB"]),
)
def test_what_is_printed_can_be_read_again(candidates: int, hold: str, size: int | str) -> None:
    """`--print-config` is a configuration file."""
    file_settings = {"scheduling.candidates": str(candidates), "scheduling.hold": hold, "limits.bindBody": str(size)}
    config = load(None, {}, file_settings)
    again = WholeConfiguration.model_validate(yaml.safe_load(config.to_yaml()))
    assert again == config
    assert again.digest == config.digest


class Heat(Section):
    """Settings of a feature."""

    enabled: bool = False


class Heated(Feature):
    """A feature with settings."""

    name = "heat"
    section = Heat


class Unlucky(Feature):
    """A feature with the name of a section of the core."""

    name = "node-groups"
    section = Heat


def test_a_feature_reads_its_own_section() -> None:
    """A document that was made without the feature has no defaults for it, so that no setting is ignored in silence."""
    assert document_of((Heated,)).model_validate({"heat": {"enabled": True}}).section(Heat).enabled
    with pytest.raises(LookupError, match="no section Heat"):
        ExtenderConfiguration().section(Heat)


def test_no_feature_takes_the_section_of_the_core() -> None:
    """Else the core would read settings of another kind."""
    with pytest.raises(ValueError, match="sections of these names: node_groups"):
        document_of((Heated, Unlucky))
