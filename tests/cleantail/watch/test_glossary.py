"""The words for people: few, short, and the same in the docs."""

from cleantail.watch.glossary import GLOSSARY


def test_the_glossary_is_short():
    assert len(GLOSSARY) <= 20
    assert max(len(word) + len(meaning) for word, meaning in GLOSSARY.items()) <= 140
