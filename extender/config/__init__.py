"""The settings of the extender: sections, and the document that they make."""
