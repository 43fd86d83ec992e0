"""How fast a set of GPUs is: rings over the links, hops over PCIe, collectives, and the fitted numbers."""
