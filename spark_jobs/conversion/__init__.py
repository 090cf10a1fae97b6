"""Deletes that sinks write without looking where the records lie, made into deletes of one data file each."""
