"""What must hold in the cluster before we decide: preconditions of a Binding, admission policies, DRA."""
