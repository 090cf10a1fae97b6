"""What goes wrong between a topic's table and its source in Kafka. Nothing was appended when one of these is raised."""

from __future__ import annotations

from cleantail.errors import CleantailError, OutsideError


class SourceError(CleantailError):
    """The source is not what the table was read from, or may not be read: trying again does not help, a person has to
    decide."""


class SourceUnreachableError(OutsideError):
    """Brokers do not answer, or a read stands still: it may work at another time."""
