"""What got slower, faster, wrong or refused between two points: pure statistics, and the reading around them."""
