"""What a job says in its log when it ends: one line of numbers and names, no wall of JSON before a reason."""

from spark_jobs.job import in_short


def test_a_result_is_one_short_line_without_what_is_nested_or_holds_data():
    result = {
        "ok": False,
        "round": "r1",
        "held_back": [1, 2],
        "checks_passed": 9,
        "measures": [{"partition": 1, "keys": 5}],
        "verdicts": [{"failures": [{"observed": "such as 'secret'"}]}],
        "sample": [{"key": "secret"}],
        "checkpoints": {"0": 5},
        "error": "said before",
        "ends": list(range(100)),
        "data_docs": "/home/" + "x" * 300,
    }
    assert in_short(result) == "ok False, round r1, held_back [1, 2], checks_passed 9"
