"""A check of a topic's own: one expectation of Great Expectations on the records that a round would publish."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, model_validator

from cleantail.config.checks.check_arguments import argument_problems, column_problems
from cleantail.config.checks.expectation_names import EXPECTATION_NAMES, expectation_name
from cleantail.config.settings.config_model import Model, problems_error
from cleantail.config.topic_table import COLUMNS


def _expectation(name: str) -> str:
    snake_case_name = expectation_name(name)
    if snake_case_name is None:
        raise ValueError("not an expectation")
    return snake_case_name


Expectation = Annotated[
    str,
    AfterValidator(_expectation),
    Field(
        json_schema_extra={
            "enum": list(EXPECTATION_NAMES),
            "x-allowed": "a core expectation of Great Expectations that works on Spark and takes neither SQL nor "
            "another table, as expect_column_values_to_not_be_null",
        }
    ),
]


class Check(Model):
    """One expectation of the topic's own; a failed critical one holds the partition back."""

    expectation: Expectation = Field(description="Name of the expectation.")
    kwargs: dict[str, JsonValue] = Field(default={}, description="Its arguments, as Great Expectations names them.")
    severity: Literal["critical", "warning", "info"] = Field(
        default="critical",
        description="critical holds the partition back; warning and info are only reported.",
    )

    @model_validator(mode="after")
    def _takes_its_arguments(self) -> Check:
        problems = argument_problems(self.expectation, self.kwargs)
        problems += column_problems(self.expectation, self.kwargs, tuple(COLUMNS))
        if problems:
            raise problems_error([((), problem) for problem in problems])
        return self
