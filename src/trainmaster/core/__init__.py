"""What decides: data and pure functions. No I/O, no clock, no randomness, no logging."""
