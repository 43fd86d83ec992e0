"""Tests of what allocates claims of our DeviceClass."""
