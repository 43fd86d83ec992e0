"""Steering: nominates the next pods of a queue, so that kube-scheduler tries the planned node first."""
