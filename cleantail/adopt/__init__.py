"""Tables that another system fills: what they are, and what must change before Cleantail compacts them in place."""
