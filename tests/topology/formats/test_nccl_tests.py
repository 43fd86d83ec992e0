"""The output of nccl-tests is read in the forms that its versions print."""

import pytest

from topology.errors import SourceError
from topology.formats.nccl_tests import NcclRun, parse_nccl_tests

HEADS = """\
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
TWO_V100 = f"""\
# nThread 1 nGpus 2 minBytes 536870912 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid   8756 on     node-1 device  0 [0x8d] Tesla V100-SXM2-32GB
#  Rank  1 Group  0 Pid   8756 on     node-1 device  1 [0x0a] Tesla V100-SXM2-32GB
node-1:8756:8756 [0] NCCL INFO cudaDriverVersion 12040
NCCL version 2.21.5+cuda12.4
{HEADS}\
   536870912     134217728     float     sum      -1    11410   47.05   47.05      0    11390   47.14   47.14      0
node-1:8756:8771 [0] NCCL WARN something in the middle
  1073741824     268435456     float     sum      -1    22700   47.30   47.30      0   22650.5   47.41   47.41      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 47.2250
#
"""
OLD = """\
# nThread 1 nGpus 1 minBytes 1310720000 maxBytes 1310720000 step: 1048576(bytes) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid   1320 on ip-172-31-20-228 device  0 [0x1e] Tesla V100-SXM2-16GB
#   Rank  1 Pid   1321 on ip-172-31-20-228 device  1 [0x1f] Tesla V100-SXM2-16GB
#
#                                                       out-of-place                       in-place
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  1310720000     327680000   float     sum   123456   10.62   10.62  2e-07   123000   10.66   10.66  2e-07
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 10.64
"""
NEW = f"""\
# nccl-tests version 2.17.1 nccl-headers=22703 nccl-library=22703
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 1073741824 step: 1048576(bytes) warmup iters: 1 iters: 20 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid 202829 on  nid005471 device  0 [0009:01:00] NVIDIA GH200 120GB
#  Rank  1 Group  0 Pid 202830 on  nid005471 device  1 [0019:02:00] NVIDIA GH200 120GB
{HEADS}\
  1073741824     268435456     float     sum      -1   9197.5  116.74  116.74      0   9195.2  116.77  116.77    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 116.755
#
# Collective test concluded: all_reduce_perf
"""


def test_rows_devices_and_version_are_found() -> None:
    """What NCCL says between them is passed over."""
    found = parse_nccl_tests(TWO_V100)

    assert found.runs == (NcclRun(2**29, 47.05), NcclRun(2**30, 47.30))
    assert (set(found.buses), found.nccl) == ({0x8D, 0x0A}, "2.21.5")


def test_older_output_without_the_column_root_is_read() -> None:
    """Its times may look like a root, and its errors are no counts."""
    found = parse_nccl_tests(OLD)

    assert found.runs == (NcclRun(1_310_720_000, 10.62),)
    assert (set(found.buses), found.nccl) == ({0x1E, 0x1F}, None)


def test_newer_output_with_whole_addresses_is_read() -> None:
    """The version is that of the library, and in-place sums need not have been checked."""
    found = parse_nccl_tests(NEW)

    assert found.runs == (NcclRun(2**30, 116.74),)
    assert (set(found.buses), found.nccl) == ({1, 2}, "2.27.3")


def test_several_programs_one_after_the_other_are_read_together() -> None:
    """So one set can be run again and again."""
    assert len(parse_nccl_tests(NEW * 3).runs) == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no row of figures"),
        ("CUDA error: out of memory\n", "no row of figures"),
        (NEW.replace(": 0 OK", ": 50 FAILED"), "line 13, column 1: 50 values came out wrong"),
        (NEW.split("# Out of", maxsplit=1)[0], "line 12, column 1: the program did not come to its end"),
        (NEW + NEW.split("# Out of", maxsplit=1)[0], "the program did not come to its end"),
        (NEW.split("# Out of", maxsplit=1)[0] + NEW, "line 12, column 1: the program did not come to its end"),
        (NEW.replace(" sum ", " none "), "line 12, column 1: no all-reduce"),
    ],
)
def test_what_is_no_figure_is_refused(text: str, reason: str) -> None:
    """Wrong sums, a program that ended early, another collective, or an error message."""
    with pytest.raises(SourceError, match=reason):
        parse_nccl_tests(text)
