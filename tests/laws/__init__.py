"""The laws that every kind obeys, held against random histories of crashes, lag, faults and edits."""
