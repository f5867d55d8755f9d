"""Replaying searches: recorded search spaces, of which every config's outcome is known, and samplers run on them."""
