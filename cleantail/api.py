"""Functions for programs that read a topic. Paths of other modules may change with any version."""

from cleantail.config.loading import find_topic, load_platform
from cleantail.lake.reader_positions import registered, remove, set_position
from cleantail.lake.records.latest_state import load_latest

__all__ = ["find_topic", "load_latest", "load_platform", "registered", "remove", "set_position"]
