"""A measure's rule, and whether a violation of it holds a log back."""

from dataclasses import asdict

import pytest

from cleantail.log.rules import RULES, WARNINGS, LogMeasure, rule_text, severity_of


@pytest.mark.parametrize(("measures", "severity"), [(RULES, "critical"), (WARNINGS, "warning")])
def test_a_broken_rule_is_critical_and_what_new_records_should_keep_to_is_a_warning(measures, severity):
    assert {severity_of(measure) for measure in measures} == {severity}
    assert {measure: rule_text(measure) for measure in measures} == measures


def test_a_log_in_which_nothing_was_counted_breaks_no_rule_and_lost_no_record():
    measure = LogMeasure(0)
    assert {name: count for name, count in asdict(measure).items() if count} == {}
    assert (set(measure.violations([*RULES, *WARNINGS]).values()), measure.removed) == ({0}, 0)


def test_a_measure_without_a_rule_is_refused():
    with pytest.raises(KeyError, match="unheard_of"):
        rule_text("unheard_of")
