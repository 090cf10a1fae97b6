"""Says where a restore finds the settings of its clients: a connection, a file of properties, or the environment. Pure
but for that file.

Brokers that the command line names get nothing of what the environment has for others: a login goes only to the brokers
that it was given with. They are often another cluster than the one that the archive was read from.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from cleantail.config.topic_source import ADDRESS, KafkaSource
from cleantail.errors import CleantailError
from cleantail.kafka.client_settings import DEFAULTS, PREFIX, settings_of_environment
from cleantail.kafka.live_broker import client_settings


def target_settings(
    bootstrap_server: str | None, connection: str | None, command_config: Path | None, env: Mapping[str, str]
) -> dict[str, str]:
    """Returns the clients' settings. Raises CleantailError where no brokers are named, or two ways to them."""
    if connection is not None and (bootstrap_server or command_config):
        raise CleantailError("--connection names brokers and login: give it without --bootstrap-server and the file")
    if command_config is not None and bootstrap_server is None:
        raise CleantailError("--command-config has the login of brokers that --bootstrap-server names: give both")
    if command_config is not None:
        settings = client_settings(str(bootstrap_server), command_config)
        return DEFAULTS | {name: str(value) for name, value in settings.items()}
    known = env.get(f"{PREFIX}BOOTSTRAP_SERVERS")
    if bootstrap_server is None and connection is None and not known:
        raise CleantailError(
            f"no brokers are named: give --bootstrap-server HOST:PORT or --connection NAME, or set {PREFIX}"
            "BOOTSTRAP_SERVERS"
        )
    source = _source(bootstrap_server, connection)
    if bootstrap_server is not None and known and known != bootstrap_server:
        return settings_of_environment(source, {})
    return settings_of_environment(source, env)


def _source(bootstrap_server: str | None, connection: str | None) -> KafkaSource:
    try:
        return KafkaSource.model_validate({ADDRESS: bootstrap_server, "connection": connection})
    except ValidationError:
        named = f"--connection {connection}" if connection else f"--bootstrap-server {bootstrap_server}"
        raise CleantailError(
            f"{named} is not allowed: host:port, several with commas between them, or the id of an Airflow connection"
        ) from None
