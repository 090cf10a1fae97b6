"""The words for people: few, short, and the same in the docs."""

from cleantail.watch.glossary import GLOSSARY, glossary_markdown


def test_the_glossary_is_short():
    assert len(GLOSSARY) <= 20
    assert max(map(len, glossary_markdown().splitlines())) <= 150
