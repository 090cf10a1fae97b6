"""Charts as coordinates: no markup, and no library that draws."""
