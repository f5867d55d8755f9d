"""The scripts behind every figure in the README and in RESULTS.md. Run them from the checkout's root."""
