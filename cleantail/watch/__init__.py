"""What users and scrapers see: states, metrics, approvals, alerts and charts."""
