"""Starting real programs and talking to them."""
