"""The wheel as pip installs it, with the newest versions that its ranges allow; it asks the package index."""

from __future__ import annotations

import pytest

from tests import versions


@pytest.mark.deep
def test_the_newest_versions_install_and_run_a_topic_by_command_line_and_dag() -> None:
    assert versions.main(["newest"]) == 0
