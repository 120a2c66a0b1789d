"""One lifecycle for jobs of every kind: a kind describes its job (`model`), the children are classified once (`facts`),
and one place decides (`decide`). The policies are the other modules, each named with the user's word."""
