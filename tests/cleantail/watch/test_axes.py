"""What is written at an axis: round numbers in the unit that people read, and few of them."""

import pytest

from cleantail.human import duration, size
from cleantail.watch.charts import MOST_MOMENTS, count, moment, moments, scale

DAY = 86_400_000


@pytest.mark.parametrize(
    ("most", "label", "written"),
    [
        pytest.param(0, count, ["0", "1"], id="nothing"),
        pytest.param(7, count, ["0", "2", "4", "6", "8"], id="records"),
        pytest.param(120_000, count, ["0", "50,000", "100,000", "150,000"], id="many records"),
        pytest.param(29_000, size, ["0", "10.0 KiB", "20.0 KiB", "30.0 KiB"], id="KiB"),
        pytest.param(3 << 20, size, ["0", "1.0 MiB", "2.0 MiB", "3.0 MiB"], id="MiB"),
        pytest.param(95_000, duration, ["0", "1 min", "2 min"], id="minutes"),
        pytest.param(9_100, duration, ["0", "5 s", "10 s"], id="seconds"),
    ],
)
def test_an_axis_of_values_has_round_numbers_up_to_what_is_needed(most, label, written):
    axis = scale(most, 10, 100, label)
    assert [tick.label for tick in axis.ticks] == written
    assert (axis.ticks[0].at, axis.ticks[-1].at) == (110, 10)
    assert axis.most >= most
    assert axis.y(axis.most) == 10


@pytest.mark.parametrize("span", [1, 999, 4_000, 90_000, 7_200_000, DAY, 10 * DAY, 400 * DAY, 40_000 * DAY])
def test_an_axis_of_time_has_a_few_round_moments_within_it(span):
    first = 1_700_000_123_456
    ticks = moments(first, first + span, 50, 800)
    assert len(ticks) <= MOST_MOMENTS + 1
    assert all(50 <= tick.at <= 850 for tick in ticks)
    assert len({tick.label for tick in ticks}) == len(ticks)


def test_moments_are_in_utc_and_as_fine_as_the_steps_between_them():
    assert moment(1_700_000_000_000, 1000) == "22:13:20"
    assert moment(1_700_000_000_000, 60_000) == "Nov 14 22:13"
    assert moment(1_700_000_000_000, DAY) == "2023-11-14"
    assert moment(10**18) == str(10**18)
