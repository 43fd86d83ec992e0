"""Small mechanisms that know nothing of GPUs: clocks, turns, backoff, bounded tables, logs, configuration, HTTP for probes.

The extender and the agent share them. Nothing here imports anything else of gputopo.
"""
