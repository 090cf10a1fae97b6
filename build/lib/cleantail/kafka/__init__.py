"""Kafka's own configs and topics, and the topic YAML that says the same."""
