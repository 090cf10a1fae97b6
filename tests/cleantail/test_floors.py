"""The floors of the house (docs/architecture.md): what may import what.

Read from the source, imports inside of functions included. There is no list of exceptions.
"""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLOORS = (
    ("cleantail.human",),
    ("cleantail.errors",),
    ("cleantail.codec", "cleantail.retries"),
    ("cleantail.home", "cleantail.config"),
    ("cleantail.sources", "cleantail.log"),
    ("cleantail.rounds",),
    ("cleantail.lake",),
    ("cleantail.erasure",),
    ("cleantail.adopt", "cleantail.kafka", "cleantail.lineage"),
    ("cleantail.intake",),
    ("cleantail.watch", "cleantail.whatif", "cleantail.api"),
    ("cleantail.doctor",),
    ("spark_jobs.iceberg", "spark_jobs.quality"),
    ("spark_jobs.engine",),
    ("spark_jobs.round",),
    ("spark_jobs",),
    ("cleantail_cli",),
    (
        "cleantail_airflow.airflow_exceptions",
        "cleantail_airflow.dag_defaults",
        "cleantail_airflow.installation",
    ),
    (
        "cleantail_airflow.catalog_login",
        "cleantail_airflow.kafka_connection",
        "cleantail_airflow.openlineage_facets",
        "cleantail_airflow.outcomes",
    ),
    ("cleantail_airflow.alerts", "cleantail_airflow.station_lineage"),
    ("cleantail_airflow.tasks", "cleantail_airflow.page"),
    ("cleantail_airflow.groups",),
    ("cleantail_airflow",),
    ("embedded_airflow",),
    ("cleantail_topics", "cleantail_broken_topics", "cleantail_doctor"),
)
"""From the ground up. What stands beside each other does not import each other."""


def _files():
    for folder, base in (
        ("cleantail", ROOT),
        ("spark_jobs", ROOT),
        ("cleantail_cli", ROOT),
        ("cleantail_airflow", ROOT / "plugins"),
        ("embedded_airflow", ROOT),
    ):
        yield from ((base, file) for file in sorted((base / folder).rglob("*.py")))
    yield from ((ROOT / "dags", file) for file in sorted((ROOT / "dags").glob("*.py")))


@cache
def modules():
    """Module -> its file."""
    files = {}
    for base, file in _files():
        parts = file.relative_to(base).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return files


@cache
def imports():
    """Module -> the modules of ours that it imports, anywhere in its file."""
    known = modules()
    graph = {name: set() for name in known}
    for name, file in known.items():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                assert node.level == 0, f"{name} imports relatively"
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    graph[name] |= {whole} & known.keys() or {node.module} & known.keys()
            elif isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names} & known.keys()
    return graph


@cache
def floor(module):
    """The number of its floor, and the name of its room there."""
    rooms = ((number, room) for number, floor in enumerate(FLOORS) for room in floor)
    inside = [(number, room) for number, room in rooms if module == room or module.startswith(f"{room}.")]
    assert inside, f"{module} stands on no floor"
    return max(inside, key=lambda place: len(place[1]))


def test_a_module_imports_only_what_is_in_its_room_or_below():
    above = {}
    for module, (number, room) in {name: floor(name) for name in modules() if name != "cleantail"}.items():
        others = {other for other in imports()[module] if floor(other)[1] != room and floor(other)[0] >= number}
        above |= {module: others} if others else {}
    assert above == {}


def test_no_modules_import_each_other_in_a_circle():
    graph = {name: set(others) for name, others in imports().items()}
    while free := [name for name, others in graph.items() if not others]:
        for name in free:
            del graph[name]
        for others in graph.values():
            others -= set(free)
    assert graph == {}
