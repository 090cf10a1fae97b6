"""Says what people and scrapers look at: states, metrics, approvals, alerts and charts."""
