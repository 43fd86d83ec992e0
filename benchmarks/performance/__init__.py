"""How fast the extender is: latency, start and memory, pods per second."""
