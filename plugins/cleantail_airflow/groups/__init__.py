"""The DAG of a group: the stations of many topics, mapped over packs of topics."""
