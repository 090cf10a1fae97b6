"""Measure the cost of a round, next to other programs that do the same work.

    python -m benchmarks [NAME ...] [--records N] [--repetitions N] [--runs N] [--work DIR]     # or: make bench

| name | what it measures |
|---|---|
| compare | a round against the broker's cleaner, Spark's rewrite, DELETE and MERGE, DuckDB, a scan of the keys |
| first_clean | the same on a log that was never cleaned; half of the records are updates |
| growth | a round over more records and other dirty shares: seconds, bytes, shuffle, spill, memory |
| startup | `cleantail compact` of a small topic from the process's start, step by step |
| tricks | what each setting that shortens a start is worth, on few and many records, local and standalone |
| many_topics | DAG parse, `plan` and `status` with 200 topics |
| page | the page of all topics from Airflow's own server; `--topics 1000` makes 1,000 topics |
| evaluation | triggers of many small topics from their tables' metadata; `--topics 1000` makes 1,000 topics |
| reclaim | rewriting files, against a plain copy of the same files |
| reading | a scan of a compacted topic, against the same records rewritten clean |
| restore | a restore into Kafka, against a bare producer of the same records |
| groups | a group of many small topics under a real Airflow: a run with new records for each, and one without |
| engine | rounds, checks and full proofs by strategy, table and shape of the log, and a scan of the keys |
| large | ten times as many records, in four logs and in one: seconds for each record, and memory |
| standalone | the same rounds on Spark standalone, with as many workers as the local master has threads |
| in_airflow | a whole DAG run of a small topic under a real Airflow, and the cost of that Airflow while it is idle |
| small_logs | the same logs as a group's, cleaned by a broker with one cleaner thread |
| small_topics | each station of a small topic, in a running application |
| age | a run of a small topic as it grows old, `--runs N` of them: seconds, commits, metadata, files |
| erasure | 1,000 erased keys with a proof, against Spark's procedures |
| denylist | an ingestion with a million erased keys, against one with none |
| readers | the comparison of two readers in a round, and the full proof |
| ingestion | records from a broker, against a bare consumer, and lines of kcat, against a bare parser |

Each system runs in a process of its own, one after another, and repeats its work there. The first repetition is
reported as cold, the median of the others as warm. Every repetition starts from the same table or log. A repetition
fails unless it leaves exactly the records that a compaction has to leave.

Each benchmark prints one table and writes it to `benchmarks/results/`. `--work DIR` keeps the data sets for the next
run. Without this option they are in a temporary directory. Data sets take about 280 bytes for each record and copy.
"""
