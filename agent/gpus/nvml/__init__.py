"""The one door to NVML: it reads facts, activity and events, sets limits, and waits for no call without a time limit."""
