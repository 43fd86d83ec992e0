"""One versioned document; flag over environment over file over default; nothing unknown is passed over."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from agent.config import AgentConfiguration, load
from extender.kit.configuration import ConfigurationError

HEAD = "apiVersion: config.gputopo.dev/v1alpha1\nkind: AgentConfiguration\n"


def write(folder: Path, text: str) -> Path:
    """Write a configuration file."""
    file = folder / "agent.yaml"
    file.write_text(text)
    return file


def test_flag_over_environment_over_file_over_default(tmp_path: Path) -> None:
    """Each takes away one layer."""
    file = write(tmp_path, HEAD + "discovery:\n  interval: 40s\n")
    environment = {"GPUTOPO_DISCOVERY_INTERVAL": "50s"}
    assert load(file, environment, {"discovery.interval": "1m"}).discovery.interval == 60
    assert load(file, environment, {"discovery.interval": None}).discovery.interval == 50
    assert load(file, {}, {}).discovery.interval == 40
    assert load(None, {}, {}).discovery.interval == 30


def test_node_name_comes_from_the_downward_api(tmp_path: Path) -> None:
    """NODE_NAME is what everybody calls it; our own variable and the flag go before."""
    assert load(None, {"NODE_NAME": "a"}, {}).node_name == "a"
    assert load(None, {"NODE_NAME": "a", "GPUTOPO_NODE_NAME": "b"}, {}).node_name == "b"
    assert load(None, {"NODE_NAME": "007"}, {"nodeName": "0x10"}).node_name == "0x10"


def test_printed_configuration_reads_back(tmp_path: Path) -> None:
    """So that the defaults can be a starting point."""
    whole = load(None, {"NODE_NAME": "a", "GPUTOPO_HEALTH_PORT": "0"}, {"discovery.interval": "1500ms"})
    assert load(write(tmp_path, whole.to_yaml()), {}, {}) == whole
    assert list(yaml.safe_load(whole.to_yaml()))[:2] == ["apiVersion", "kind"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEAD + "discovery:\n  intervall: 5s\n", "agent.yaml: discovery.intervall: unknown key"),
        (HEAD + "discovery:\n  interval: 5\n", "discovery.interval: not a duration such as 500ms, 5s or 1m30s"),
        (HEAD + "publish:\n  refreshInterval: 0s\n", "publish.refreshInterval: Input should be greater than 0"),
        (HEAD + "enforce:\n  processWait: 21s\n", "enforce.processWait: Input should be less than or equal to 20"),
        (HEAD + "enforce:\n  processWait: never\n", "enforce.processWait: not a duration"),
        (
            HEAD + "discovery:\n  ignoredProcesses: ['']\n",
            "discovery.ignoredProcesses.0: String should have at least 1",
        ),
        (HEAD + "health:\n  port: 70000\n", "health.port"),
        (HEAD + "health:\n  gpuSeries: true\n", "health.gpuSeries: unknown key"),
        (HEAD + "metrics:\n  gpus: sometimes\n", "metrics.gpus: Input should be 'auto', 'always' or 'never'"),
        (HEAD + "sharing:\n  gpus: some\n", "sharing.gpus"),
        (HEAD + "sharing:\n  gpus: 0\n", "sharing.gpus"),
        (HEAD + "sharing:\n  reserveGib: -1\n", "sharing.reserveGib"),
        (HEAD + "sharing:\n  limits: preferable\n", "sharing.limits: Input should be 'required' or 'preferred'"),
        (HEAD + "log: loud\n", "log"),
        ("kind: AgentConfiguration\n", "apiVersion: must be config.gputopo.dev/v1alpha1, got None"),
        (HEAD.replace("Agent", "Extender"), "kind: must be AgentConfiguration, got ExtenderConfiguration"),
        ("- a\n", "agent.yaml: not a mapping"),
        ("a: [\n", "agent.yaml: while parsing"),
    ],
)
def test_wrong_file_is_refused_with_path_and_reason(text: str, problem: str, tmp_path: Path) -> None:
    """What somebody wrote and we did not understand is never ignored."""
    with pytest.raises(ConfigurationError) as caught:
        load(write(tmp_path, text), {}, {})
    assert problem in str(caught.value)


def test_names_come_from_the_environment_too(tmp_path: Path) -> None:
    """Separated by commas; none at all is a list, too."""
    file = write(tmp_path, HEAD + "discovery:\n  ignoredProcesses: [x]\nenforce:\n  processWait: 0s\n")
    variable = "GPUTOPO_DISCOVERY_IGNORED_PROCESSES"
    assert load(file, {variable: "a,b"}, {}).discovery.ignored_processes == ("a", "b")
    assert load(file, {variable: ""}, {}).discovery.ignored_processes == ()
    assert load(file, {}, {}).discovery.ignored_processes == ("x",)
    assert load(file, {}, {}).enforce.process_wait == 0


def test_where_dcgm_exporter_answers_comes_from_the_downward_api(tmp_path: Path) -> None:
    """The chart sets it; the rest of the section stays as it was written."""
    file = write(tmp_path, HEAD + "metrics:\n  holders: true\n")
    environment = {"GPUTOPO_METRICS_DCGM_HOST": "10.0.0.7", "GPUTOPO_METRICS_DCGM_PORT": "19400"}
    found = load(file, environment, {}).metrics
    assert (found.gpus, found.holders, found.dcgm.host, found.dcgm.port) == ("auto", True, "10.0.0.7", 19400)


def test_sharing_is_off_unless_somebody_wants_it_and_its_bare_words_are_understood(tmp_path: Path) -> None:
    """YAML reads `on` as true, and the environment knows no numbers."""
    assert load(None, {}, {}).sharing.gpus == "none"
    file = write(tmp_path, HEAD + "sharing:\n  gpus: 2\n  mps: on\n  models: ['*h100*']\n")
    found = load(file, {"GPUTOPO_SHARING_RESERVE_GIB": "3", "GPUTOPO_SHARING_LIMITS": "preferred"}, {}).sharing
    assert (found.gpus, found.mps, found.models, found.reserve_gib, found.limits) == (
        2,
        "on",
        ("*h100*",),
        3,
        "preferred",
    )
    assert load(file, {"GPUTOPO_SHARING_GPUS": "4"}, {}).sharing.gpus == 4


def test_missing_file_is_refused(tmp_path: Path) -> None:
    """A typing error in a path must not mean "all defaults"."""
    with pytest.raises(ConfigurationError, match="No such file"):
        load(tmp_path / "nowhere.yaml", {}, {})


def test_foreign_environment_is_none_of_ours() -> None:
    """Kubernetes fills the environment with its own."""
    assert load(None, {"GPUTOPO_AGENT_SERVICE_HOST": "10.0.0.1", "INTERVAL": "1s"}, {}) == AgentConfiguration()


def test_imex_channels_are_none_or_the_one_that_nvidias_plugin_knows() -> None:
    """In the environment as a number; another channel is refused by name."""
    name = "GPUTOPO_ENFORCE_IMEX_CHANNELS"
    assert load(None, {}, {}).enforce.imex_channels == ()
    assert load(None, {name: "0"}, {}).enforce.imex_channels == (0,)
    for wrong in ("1", "0,0", "x"):
        with pytest.raises(ConfigurationError, match=r"enforce\.imexChannels"):
            load(None, {name: wrong}, {})
