"""Reading the openb form: what a folder has to hold, and what is said of one that does not."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from benchmarks.placement.jobs import PodSize
from benchmarks.placement.traces.files import BadTrace
from benchmarks.placement.traces.openb import OpenbTrace

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,1000,2,T4\nb,64000,1000,0,\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np,4000,10,1,300,T4|A10\nq,8000,20,0,,\n"


def trace(folder: Path, nodes: str = NODES, pods: str = PODS) -> OpenbTrace:
    """Write a folder with one workload, `mine`, gzipped."""
    (folder / "x_node_list_all.csv").write_text(nodes)
    (folder / "x_pod_list_mine.csv.gz").write_bytes(gzip.compress(pods.encode()))
    return OpenbTrace(folder)


def test_reads_nodes_and_workloads(tmp_path: Path) -> None:
    """Nodes without GPUs take no part; a list of pods is a workload by the end of its name."""
    found = trace(tmp_path)
    assert [(server.name, len(server.topology), server.model) for server in found.servers()] == [("a", 2, "T4")]
    assert found.workloads == ("mine",)
    assert found.pods("mine") == (PodSize(1, 300, 4000, 10, ("T4", "A10")), PodSize(0, 1000, 8000, 20))


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        ("name,cpu_milli\n", "no column 'num_gpu'"),
        (PODS.replace("300", "1300"), "line 2: 1300 milli of a GPU"),
        (PODS.replace("10,1,300", "10,4,300"), "line 2: a share of 4 GPUs at once"),
        (PODS.replace("8000", "many"), "line 3: cpu_milli 'many' is no number"),
        (PODS.replace("8000", "8000.5"), "line 3: cpu_milli '8000.5' is no whole number"),
        (PODS.replace("8000", "nan"), "line 3: cpu_milli 'nan' is not between 0 and"),
        (PODS.replace("8000", "-8000"), "line 3: cpu_milli '-8000' is not between 0 and"),
        (PODS.replace("8000", "1" + "0" * 30), "line 3: cpu_milli .* is not between 0 and"),
        (PODS + "r,4000\n", "line 4: no cell for 'num_gpu'"),
        (PODS + "r,4000,10,1,300,T4,A10\n", "line 4: more cells than columns"),
        (PODS.replace("10,1,300", "10,0,300"), "no pod that asks for a GPU"),
        (PODS.replace("name,cpu_milli", "cpu_milli,cpu_milli"), "two columns 'cpu_milli'"),
        (PODS + "x" * 200_000, "line 4: field larger than field limit"),
    ],
)
def test_names_file_line_and_reason(tmp_path: Path, pods: str, reason: str) -> None:
    """What cannot be read is not guessed at."""
    with pytest.raises(BadTrace, match=f"x_pod_list_mine.csv.gz.*{reason}"):
        trace(tmp_path, pods=pods).pods("mine")


@pytest.mark.parametrize("percent", [0, 20, 60, 100])
def test_a_list_is_drawn_anew_so_that_shares_are_a_part_of_what_is_asked_for(tmp_path: Path, percent: int) -> None:
    """Always the same list, as long as the first one, with its pods that ask for no GPU."""
    mixed = PODS + "r,4000,10,1,1000,\n" * 500 + "s,6000,10,1,700,\n" * 500
    found = trace(tmp_path, pods=mixed)
    drawn = found.pods(f"mine/gpushare{percent}")
    asked, shared = (sum(pod.gpus * pod.gpu_milli for pod in drawn if pod.shares >= only) for only in (False, True))
    assert shared == pytest.approx(asked * percent / 100, abs=1000)
    assert set(drawn) <= set(found.pods("mine")) and len(drawn) == 1002 and sum(not pod.gpus for pod in drawn) == 1
    assert drawn == OpenbTrace(tmp_path).pods(f"mine/gpushare{percent}")


@pytest.mark.parametrize("mix", ["gpushare101", "gpushare020", "cpu100", "gpushare50"])
def test_what_cannot_be_drawn_is_refused(tmp_path: Path, mix: str) -> None:
    """Another kind of list, or one that needs pods which are not there."""
    with pytest.raises(BadTrace, match=f"no pods can be drawn for {mix!r}"):
        trace(tmp_path).pods(f"mine/{mix}")


@pytest.mark.parametrize("nodes", [NODES.replace("1000,2", "1000,0"), "sn,cpu_milli,memory_mib,gpu,model\n"])
def test_a_cluster_without_gpus_is_no_cluster(tmp_path: Path, nodes: str) -> None:
    """There is nothing to place on it."""
    with pytest.raises(BadTrace, match=r"x_node_list_all\.csv has no node with GPUs"):
        trace(tmp_path, nodes=nodes).servers()


def test_what_spreadsheets_write_is_read(tmp_path: Path) -> None:
    """A byte order mark, lines that end as on Windows, blanks around words, whole numbers as they stand beside gaps."""
    found = trace(tmp_path, "\ufeff" + NODES.replace("\n", "\r\n"), "\ufeff" + PODS.replace("300,T4|", "300.0, T4 | "))
    assert len(found.servers()) == 1
    assert found.pods("mine")[0] == PodSize(1, 300, 4000, 10, ("T4", "A10"))


def test_pods_of_a_list_without_memory_ask_for_none(tmp_path: Path) -> None:
    """`openb_pod_list_nomem.csv`, which FGD's authors keep beside the others, has no such column."""
    found = trace(tmp_path, pods="name,cpu_milli,num_gpu,gpu_milli,gpu_spec\np,4000,1,300,T4\n")
    assert found.pods("mine") == (PodSize(1, 300, 4000, 0, ("T4",)),)


def test_two_lists_of_the_same_nodes_are_one_cluster(tmp_path: Path) -> None:
    """Alibaba publishes all nodes, and those with GPUs once more under numbers of their own."""
    found = trace(tmp_path, nodes=NODES + "c,8000,1000,1,P4\n")
    renamed = "sn,cpu_milli,memory_mib,gpu,model\n0,8000,1000,1,P4\n1,64000,1000,2,T4\n"
    (tmp_path / "x_node_list_gpu.csv").write_text(renamed)
    assert [server.name for server in found.servers()] == ["a", "c"]


def test_two_clusters_are_not_chosen_between(tmp_path: Path) -> None:
    """Nor are they put together."""
    found = trace(tmp_path)
    (tmp_path / "y_node_list_all.csv").write_text(NODES.replace("1000,2", "1000,4"))
    with pytest.raises(BadTrace, match=r"two clusters: x_node_list_all\.csv and y_node_list_all\.csv"):
        found.servers()


def test_a_folder_without_nodes_is_no_trace(tmp_path: Path) -> None:
    """It says which file it lacks."""
    with pytest.raises(BadTrace, match=r"no file \*node_list\*\.csv"):
        OpenbTrace(tmp_path).servers()


def test_text_in_another_encoding_is_refused_with_its_line(tmp_path: Path) -> None:
    """And the file that it is in, not a position in some block of it."""
    found = trace(tmp_path, pods="\n".join([PODS] + ["r,4000,10,1,300,"] * 2000))
    with gzip.open(tmp_path / "x_pod_list_mine.csv.gz", "ab") as file:
        file.write("\né,4000,10,1,300,".encode("latin-1"))
    with pytest.raises(BadTrace, match=r"x_pod_list_mine\.csv\.gz, line 2005: not UTF-8 text"):
        found.pods("mine")


def test_a_list_in_both_forms_is_not_chosen_between(tmp_path: Path) -> None:
    """Plain and gzipped may differ."""
    found = trace(tmp_path)
    (tmp_path / "x_pod_list_mine.csv").write_text(PODS)
    with pytest.raises(BadTrace, match=r"both x_pod_list_mine\.csv and x_pod_list_mine\.csv\.gz"):
        _ = found.workloads


def test_two_lists_of_one_name_are_not_chosen_between(tmp_path: Path) -> None:
    """The name of a workload is what stands behind `pod_list_`."""
    found = trace(tmp_path)
    (tmp_path / "y_pod_list_mine.csv").write_text(PODS)
    with pytest.raises(BadTrace, match=r"two lists of pods 'mine': x_pod_list_mine\.csv\.gz and y_pod_list_mine\.csv"):
        found.pods("mine")


def test_a_folder_without_pods_is_no_trace(tmp_path: Path) -> None:
    """An empty folder says what it lacks."""
    with pytest.raises(BadTrace, match="pod_list"):
        _ = OpenbTrace(tmp_path).workloads


def test_a_broken_gzip_is_no_trace(tmp_path: Path) -> None:
    """Half a file is an error and not half a workload."""
    found = trace(tmp_path)
    path = tmp_path / "x_pod_list_mine.csv.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(BadTrace, match="x_pod_list_mine"):
        found.pods("mine")
