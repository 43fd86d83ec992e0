"""Wakes kube-scheduler for pods that were refused, and would not be refused any more."""
