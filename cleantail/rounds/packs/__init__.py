"""Packs of topics whose work one Spark application does: what became of them, from try to try."""
