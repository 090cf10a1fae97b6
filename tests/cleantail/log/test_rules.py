"""A measure's rule, and whether a violation of it holds a log back."""

import pytest

from cleantail.log.rules import RULES, WARNINGS, rule_text, severity_of


@pytest.mark.parametrize(("measures", "severity"), [(RULES, "critical"), (WARNINGS, "warning")])
def test_a_broken_rule_is_critical_and_what_new_records_should_keep_to_is_a_warning(measures, severity):
    assert {severity_of(measure) for measure in measures} == {severity}
    assert {measure: rule_text(measure) for measure in measures} == measures


def test_a_measure_without_a_rule_is_refused():
    with pytest.raises(KeyError, match="unheard_of"):
        rule_text("unheard_of")
