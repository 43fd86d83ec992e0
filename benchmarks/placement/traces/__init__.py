"""Readers of published traces; docs/explanation/benchmarks.md says where each is published and what a folder has to hold."""
