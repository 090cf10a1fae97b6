"""Tables that another system fills: what they are, and what has to change before they are compacted in place."""
