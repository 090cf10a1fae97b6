"""Gives Airflow the plugin where this folder is its plugins folder and Cleantail is not installed as a package.

Where it is, also as `make setup` installs a checkout, Airflow finds the plugin by its entry point, and here nothing:
it is to be there once.
"""

from importlib.metadata import entry_points

if not entry_points(group="airflow.plugins", name="cleantail"):
    from cleantail_airflow.plugin import CleantailPlugin  # noqa: F401
