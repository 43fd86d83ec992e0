"""Predicted bandwidth against published measurements."""
