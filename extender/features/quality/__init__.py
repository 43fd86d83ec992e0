"""Measures how good the decisions are, for metrics and pages."""
