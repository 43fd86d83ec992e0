"""Breaks the product one line at a time, and says which breaks no test notices."""
