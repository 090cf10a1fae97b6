"""Register the plugin if this folder is Airflow's plugins folder and Cleantail is not installed as a package.

If it is installed, also by `make setup` in a checkout, Airflow finds the plugin by its entry point. Then this file
registers nothing, because the plugin must be loaded only once.
"""

from importlib.metadata import entry_points

if not entry_points(group="airflow.plugins", name="cleantail"):
    from cleantail_airflow.plugin import CleantailPlugin  # noqa: F401
