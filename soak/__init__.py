"""Soak: hours of faults on the whole product, compared with an oracle that shares no code with it (docs/soak.md).

A *site* has *machines*, and a *gateway* between each machine and the catalog. A *history* is a list of acts: records,
commands, faults, other engines. The *oracle* compares the table with Kafka's rules after each act.
"""
