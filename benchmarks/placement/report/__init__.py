"""The comparison as a page: tables with intervals, figures, and what they were measured with."""
