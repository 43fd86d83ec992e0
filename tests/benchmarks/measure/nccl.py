"""A program that prints what nccl-tests prints, for machines without GPUs: a shell script, so that any image can hold it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from topology.node.model import NodeTopology

_PROGRAM = r"""#!/bin/sh
while [ $# -gt 1 ]; do
  case $1 in -b) size=$2 ;; -g) gpus=$2 ;; esac
  shift 2
done
case $CUDA_VISIBLE_DEVICES in
RATES
  *) rate=DEFAULT ;;
esac
echo "# nThread 1 nGpus $gpus minBytes $size maxBytes $size step: 1048576(bytes) warmup iters: 3 iters: 10 validation: 1 graph: 0"
echo "#"
echo "# Using devices"
rank=0
for gpu in $(IFS=,; echo $CUDA_VISIBLE_DEVICES); do
  case $gpu in
BUSES
  esac
  [ -n "$bus" ] && echo "#  Rank  $rank Group  0 Pid      9 on       host device  $rank [0x$bus] GPU"
  rank=$((rank + 1))
done
[ $rank = $gpus ] || { echo "invalid number of GPUs $gpus"; exit 2; }
[ "$rate" = broken ] && { echo "host: Test NCCL failure common.cu:999 'unhandled cuda error'"; exit 3; }
echo "NCCL version 2.26.2+cuda12.8"
echo "#"
echo "#                                                              out-of-place                       in-place"
echo "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
echo "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)"
echo "  $size     $((size / 4))     float     sum      -1    11410   $rate   $rate      0    11390   $rate   $rate      0"
echo "# Out of bounds values : 0 OK"
echo "# Avg bus bandwidth    : $rate"
echo "#"
"""


def write_all_reduce_perf(
    file: Path, machine: NodeTopology, rates: Mapping[tuple[int, ...], str], default: str = "9.87"
) -> None:
    """Write a program for one machine, which says of these sets of its GPUs that they reach so much; `broken`: it fails."""
    uuids = [gpu.uuid for gpu in machine.gpus]
    of_sets = (f"  {','.join(uuids[gpu] for gpu in gpus)}) rate={rate} ;;" for gpus, rate in rates.items())
    of_gpus = (f"    {gpu.uuid}) bus={(gpu.pci or '0:0:0').split(':')[-2].lower()} ;;" for gpu in machine.gpus)
    text = _PROGRAM.replace("RATES", "\n".join(of_sets)).replace("BUSES", "\n".join(of_gpus))
    file.write_text(text.replace("DEFAULT", default))
    file.chmod(0o755)
