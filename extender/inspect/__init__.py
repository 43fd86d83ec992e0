"""What people may ask: one view of nodes and pods for pages, JSON and the kubectl plugin."""
