"""Measures what kinds of GPU sets reach on the machines of a cluster: Jobs with nccl-tests, one for each kind of machine."""
