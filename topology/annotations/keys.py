"""All annotation and resource names: the public contract with users, agents and other readers.

There is one prefix per writer, so that one admission-policy rule per prefix protects them. `gputopo.dev/` is written by
users, `topo.gputopo.dev/` by the agent, and `alloc.gputopo.dev/` by the extender.
"""

from __future__ import annotations

from typing import Final

# Pod annotations, written by users.
REQUIRED_AFFINITY: Final = "gputopo.dev/required-affinity"
"""`nvlink`, `pcie-switch` or `numa-node`: every hop of the set's best ring is at least this near, else no placement."""
PREFERRED_AFFINITY: Final = "gputopo.dev/preferred-affinity"
"""The same words as a preference; a multi-GPU pod that says nothing gets `nvlink`."""
MIN_BANDWIDTH: Final = "gputopo.dev/min-bandwidth"
"""Floor on the predicted all-reduce bus bandwidth, GB/s (decimal)."""
RELAX_AFTER: Final = "gputopo.dev/relax-after"
"""Duration (`90s`, `10m`, `1h30m`) after which the two floors above turn into preferences."""
COMMUNICATION: Final = "gputopo.dev/communication"
"""`heavy`, `light` or `none`: how much of a step is collective traffic."""
GPU_MODEL: Final = "gputopo.dev/gpu-model"
"""Comma-separated globs over NVML's product name."""
MIN_GPU_MEMORY: Final = "gputopo.dev/min-gpu-memory"
"""Kubernetes quantity: least memory of each GPU."""
MIN_COMPUTE_CAPABILITY: Final = "gputopo.dev/min-compute-capability"
MIN_DRIVER: Final = "gputopo.dev/min-driver"
MIN_CUDA: Final = "gputopo.dev/min-cuda"
ECC: Final = "gputopo.dev/ecc"
"""`on` or `off`."""
NIC_AFFINITY: Final = "gputopo.dev/nic-affinity"
"""`required` or `preferred`: an RDMA NIC under the same PCIe switch."""
GROUP: Final = "gputopo.dev/group"
"""Name: pods of one namespace that say the same belong together across nodes."""
GROUP_SIZE: Final = "gputopo.dev/group-size"
"""How many pods the group has altogether; without it, as many as exist."""
GROUP_SCOPE: Final = "gputopo.dev/group-scope"
"""`run` (default): the pods of one Job and the like; `namespace`: all pods of the namespace that name the group."""
GROUP_AFFINITY: Final = "gputopo.dev/group-affinity"
"""`nvlink-domain`, `rack` or `block`, of which the group takes as few as can be; `required-rack`: one, else no placement."""
GANG: Final = "gputopo.dev/gang"
"""`required`: the pods of the group start together or not at all, if they wait behind the gate `PLAN_GATE`."""
GROUP_MIN: Final = "gputopo.dev/group-min"
"""How many pods of a gang are enough for it to start; without it all."""
EXPECTED_DURATION: Final = "gputopo.dev/expected-duration"
"""How long the pod will run (`90s`, `10m`, `4h`). It may have GPUs that are kept for a gang if it ends before that starts."""
MOVABLE: Final = "gputopo.dev/movable"
"""`true`: the pod may be evicted to make room for another one, if it has a new place; `false` (default): it may not."""
RESTART_COST: Final = "gputopo.dev/restart-cost"
"""How much work is lost at most when the pod is moved (`90s`, `10m`, `4h`); without this and the next one, all of it."""
CHECKPOINT_INTERVAL: Final = "gputopo.dev/checkpoint-interval"
"""How often the pod saves its work; half of it is lost on average when it is moved."""
SHARING_CLASS: Final = "gputopo.dev/sharing-class"
"""Name: pods of different classes never share a GPU; those without one are a class of their own."""
COMPUTE_PERCENT: Final = "gputopo.dev/gpu-compute-percent"
"""1 to 100: a ceiling on how much of a GPU's multiprocessors a pod that shares it may use."""
SAME_GPU: Final = "gputopo.dev/same-gpu"
"""`preferred` (default), `required` or `never`: whether the shares of a pod's containers are on one GPU."""
DEVICE_MISMATCH: Final = "gputopo.dev/device-mismatch"
"""`adopt` (default) or `refuse`: what the node does when it cannot hand out the planned GPUs."""
EVICT_WHEN_SICK: Final = "gputopo.dev/evict-when-sick"
"""`true`: where the cluster allows it, the pod is evicted when a GPU that it holds falls sick; `false` (default): never."""
PLACEHOLDER_FOR: Final = "gputopo.dev/placeholder-for"
"""`namespace/name/uid` of a pod that waits. What carries it stands for that pod before autoscalers, and is never placed."""

GPU_HEALTH: Final = "gputopo.dev/gpu-health"
"""On a node, by whoever may write nodes: by UUID, that a GPU is `cordoned` or `healthy`, why, by whom, and until when."""

PAUSE: Final = "gputopo.dev/pause"
"""On a node, by whoever may write nodes: why its driver is left alone for now. The agent lets go of it; no new pod comes."""

# A scheduling gate, put on pods by users or by an admission policy.
PLAN_GATE: Final = "gputopo.dev/plan"
"""The pod waits in gputopo's own queue until it is planned."""

# A condition of pods, written by the queue.
PLANNED_CONDITION: Final = "gputopo.dev/Planned"
"""`False` with the reason why the pod waits in the queue; `True` once it is bound. Pods that have not waited do not have it."""

# A condition of nodes, written by the agent where that is switched on.
GPUS_HEALTHY: Final = "gputopo.dev/GPUsHealthy"
"""`False` while a GPU of the node is quarantined or failed; the message names them."""

USER_PREFIX: Final = "gputopo.dev/"
AGENT_PREFIX: Final = "topo.gputopo.dev/"
EXTENDER_PREFIX: Final = "alloc.gputopo.dev/"

# Node annotations, written by the agent.
TOPOLOGY: Final = "topo.gputopo.dev/topology"
"""GPUs, links, switches, NICs, NVLink domain, driver and CUDA versions; changes rarely."""
TOPOLOGY_DIGEST: Final = "topo.gputopo.dev/digest"
"""Digest of the topology payload; a claim is written only against the digest that it was planned on."""
STATUS: Final = "topo.gputopo.dev/status"
"""Health per GPU and link with reasons, memory in use, MIG mode; written on change only."""
OBSERVED: Final = "topo.gputopo.dev/observed"
"""Which pod's container really holds which GPU."""

# Written by the extender: the ledger on the node, the placement on the pod.
LEDGER: Final = "alloc.gputopo.dev/ledger"
PLACEMENT: Final = "alloc.gputopo.dev/placement"
FENCE: Final = "alloc.gputopo.dev/fence"
"""Moves a pod's resourceVersion, so that a Binding prepared before can no longer commit."""

NOMINATED: Final = "alloc.gputopo.dev/nominated"
"""The node that the extender has nominated the pod for; where `status.nominatedNodeName` says another one, that is not ours."""

PLANNED: Final = "alloc.gputopo.dev/planned"
"""The node that the queue has directed the pod to; it comes with the write that removes `PLAN_GATE`."""

MOVES: Final = "alloc.gputopo.dev/moves"
"""On the queue's Lease: which pods have moved in the last hour, so that limits hold after a restart."""

LOOK: Final = "alloc.gputopo.dev/look"
"""On the node: a resourceVersion of it; the agent is to report what containers hold after a later version than that one."""

CLAIM_POD: Final = "alloc.gputopo.dev/pod"
"""On a ResourceClaim that was not made from a template: UID of the one pod for which it is allocated."""

# Resources.
GPU_RESOURCE: Final = "nvidia.com/gpu"
MIG_PREFIX: Final = "nvidia.com/mig-"
"""Of the resources of MIG slices, as NVIDIA's device plugin names them; the profile follows, `+` as `.`."""
SHARE_RESOURCE: Final = "gputopo.dev/gpu-memory-gib"
"""A share of one GPU: GiB of its memory."""
