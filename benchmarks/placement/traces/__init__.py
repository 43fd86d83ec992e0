"""Readers of published traces; docs/how-to/compare-placements.md says where each is published and what a folder has to hold."""
