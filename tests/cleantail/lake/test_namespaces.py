"""Properties of a namespace over a REST catalog, as over a SQL one: what is written is read, and no other goes."""

import json

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

from cleantail.lake.own_namespace import namespace_properties, property_name, topic_of_value, write_properties
from tests.cleantail.rest_catalog import JsonHandler, served


class Namespaces(JsonHandler):
    """The part of Iceberg's REST specification that is about namespaces and their properties."""

    def do_GET(self):
        if self.path.startswith("/v1/config"):
            return self.answer(200, {"defaults": {}, "overrides": {}})
        known = self.server.namespaces.get(self._name())
        if known is None:
            return self._missing()
        return self.answer(200, {"namespace": [self._name()], "properties": known})

    def do_HEAD(self):
        self.send_response(204 if self._name() in self.server.namespaces else 404)
        self.end_headers()

    def do_POST(self):
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/namespaces":
            self.server.namespaces[document["namespace"][0]] = dict(document["properties"])
            return self.answer(200, document)
        known = self.server.namespaces.get(self._name())
        if known is None:
            return self._missing()
        gone = [name for name in document["removals"] if known.pop(name, None) is not None]
        known.update(document["updates"])
        return self.answer(200, {"removed": gone, "updated": list(document["updates"]), "missing": []})

    def _name(self):
        return self.path.split("/")[3] if self.path.count("/") >= 3 else ""

    def _missing(self):
        self.refuse(404, "NoSuchNamespaceException")


@pytest.fixture
def rest():
    with served(Namespaces) as (server, address):
        server.namespaces = {}
        yield RestCatalog("cleantail", uri=address)


@pytest.fixture
def sql(tmp_path):
    catalog = SqlCatalog("cleantail", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    yield catalog
    catalog.close()


@pytest.mark.parametrize("kind", ["rest", "sql"])
def test_what_is_written_is_read_and_nothing_else_goes(kind, request):
    catalog = request.getfixturevalue(kind)
    assert namespace_properties(catalog, "cleantail") == {}
    write_properties(catalog, "cleantail", {"a": "1", "b": "2"}, set())
    write_properties(catalog, "cleantail", {"a": "3"}, {"b", "never was"})
    write_properties(catalog, "cleantail", {"c": "4"}, set())
    found = namespace_properties(catalog, "cleantail")
    assert {name: found.get(name) for name in "abc"} == {"a": "3", "b": None, "c": "4"}


def test_names_of_properties_never_meet():
    identities = [("orders", 1), ("orders", 11), ("orders1", 1), ("orders", "1"), ("orders.1",), ("orders_1",)]
    assert len({property_name("p.", *identity) for identity in identities}) == len(identities)


@pytest.mark.parametrize(
    ("text", "topic"),
    [('{"topic": "orders", "x": [1]}', "orders"), ('{"topic": 1}', None), ("{}", None), ("[", None)],
)
def test_a_value_says_its_topic_also_where_the_rest_cannot_be_read(text, topic):
    assert topic_of_value(text) == topic
