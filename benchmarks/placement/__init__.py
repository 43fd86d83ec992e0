"""Placement experiments: the product's own decision beside its peers' rules, on the same jobs."""
