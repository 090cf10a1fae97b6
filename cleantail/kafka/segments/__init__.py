"""A topic's log as a broker has it on disk: its `.log` files, or their copies in tiered storage, without a broker.

`log_folders` finds the files and what the broker's own checkpoints say of them. `segment_scan` goes through one file,
verifies every checksum and notes what the whole log needs of it; `scanned_log` (pure) puts the files of a partition in
order, and says from where to where a consumer may read them. `log_reader` reads ranges of offsets of such a log.
"""
