"""What happens to GPUs between two looks: errors, counters and links, as evidence for the health machine in `agent.health`."""
