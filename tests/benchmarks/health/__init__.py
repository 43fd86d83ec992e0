"""Tests of the course of GPUs' health."""
