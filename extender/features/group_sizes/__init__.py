"""Reads sizes of groups off Jobs, JobSets and PodGroups."""
