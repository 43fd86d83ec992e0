"""The queue's part of the claim protocol, explored exhaustively: from the gate to the bind.

Planners claim for gated pods, open their gates, take plans back, carry on what others have begun, and die. A kube-scheduler that
asks nobody binds the pods. In no reachable state two pods have one GPU, or a pod that may be bound has lost its claims, or a gang
has started in parts; and all that is claimed can be used or taken back.

The model relies on one watch of all pods, which shows changes in their order. Ledgers are not lost here, and no claim falls sick:
`tests/model` and `tests/simulation` have these.
"""
