"""The configuration: YAML files as frozen values."""
