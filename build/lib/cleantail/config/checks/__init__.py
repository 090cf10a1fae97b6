"""A topic's own checks: which expectations they may be, and which arguments these take."""
