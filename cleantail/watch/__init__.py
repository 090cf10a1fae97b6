"""What people and scrapers see: states, metrics, approvals, alerts and charts."""
