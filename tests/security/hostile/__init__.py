"""Hostile tenants, made by chance: random values in every field that users, agents and kubelets write, and the laws for others.

`python -m tests.security.hostile --seconds 3600` runs them for an hour; `test_hostile_tenants.py` for minutes.

- `values`: random values, the extreme ones often. Nothing here knows a fault of the product.
- `tenants`: what one tenant, or the holder of one node's token, does with them.
- `cluster`: 200 nodes on the API double, the real extender, and what its calls cost.
- `laws`: what must hold for everybody else.
- `run`: one family of tenants against one cluster.
"""
