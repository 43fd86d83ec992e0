"""What was heard last: nodes, pods, agents and the CPU in use."""
