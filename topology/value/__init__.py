"""What a choice costs the pods to come."""
