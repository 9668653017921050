"""What the test suites share: dtypes, layouts, oracles and producers. Knows nothing of the product."""
