"""Says what an earlier version has left in configuration and state, and what becomes of it in this one.

1. This version reads what version 0.1.0 and those after it have written: what they did not write takes a default
   (cleantail.codec). So nothing has to be upgraded before a run, but for keys of the configuration that are gone.
2. Each finding is a Change, which says who sees to it: `cleantail upgrade`, a task of this version by itself, or a
   person.
3. Everything is found from metadata: texts of YAML, the heads of tables, the first bytes of pages. Looking changes
   nothing.
4. What is upgraded twice is changed once: the second look finds nothing.
"""
