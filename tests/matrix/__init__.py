"""Every kind in every situation: one table of expected outcomes, run in memory against the operator's own loop."""
