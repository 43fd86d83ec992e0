"""The GPU graph of one node, what a set of its GPUs is worth, and the plan: pure values and functions.

No I/O, no clock, no globals. `agent` fills these values, `extender` decides with them.
"""
