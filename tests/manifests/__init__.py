"""Jobs as users write them, good and bad, and what must become of each."""
