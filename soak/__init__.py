"""Hours of faults, nothing lost: a soak of the whole product, with an oracle that shares no code with it.

    python -m soak --minutes 60

1. A *site* (`site`) is a real REST catalog, a warehouse on this disk, and *machines*: processes that share nothing but
   the catalog and the warehouse. Each has a home of its own and runs commands of `cleantail` one after another.
2. Each machine talks to the catalog through its own door of the *gateway* (`gateway`). The gateway knows each request
   by its *point*, such as `compact: publish`, and answers it wrongly, late, twice or never. It also kills or stops the
   machine at that moment, or changes the disk.
3. A *history* (`histories`) is a list of acts, drawn from a seed: records, commands, their faults, other engines.
4. While a history is played (`play`), the *oracle* (`oracle`) notes acknowledged records. After each act it compares
   the table with Kafka's rules. At the end, runs without faults must settle the topic.
5. A history that fails is saved, and the exit code is 1. `--replay` plays it again, and `--shrink` makes it shorter.
"""
