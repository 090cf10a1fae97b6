"""Soak: hours of faults on the whole product, compared with an oracle that shares no code with it.

    python -m soak --minutes 60

1. A *site* (`site`) is a real REST catalog, a warehouse on this disk, and *machines*: processes that share only the
   catalog and the warehouse. Each has its own home and runs commands of `cleantail` one after another.
2. Each machine sends its requests to the catalog through its own door of the *gateway* (`gateway`). The gateway names
   each request by its *point*, such as `compact: publish`. It answers some wrongly, late, twice or never. It can also
   kill or stop the machine at that moment, or change the disk.
3. A *history* (`histories`) is a list of acts, drawn from a seed: records, commands, their faults, other engines.
   Faults are assigned in turn, so that each kind occurs at each point.
4. While a history is played (`play`), the *oracle* (`oracle`) stores the acknowledged records. After each act it
   compares the table with Kafka's rules. At the end, runs without faults must settle the topic.
5. A history that fails is saved, and the exit code is 1. `--replay` plays it again, and `--shrink` makes it shorter.
"""
