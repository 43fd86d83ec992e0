"""Puts measured bandwidths in the place of predictions."""
