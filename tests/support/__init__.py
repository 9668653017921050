"""Shared by the test suites: dtypes, layouts, oracles, producers. Knows nothing of the product."""
