"""What a process that works with Temporal is made of: its settings, its connection, its worker.

The deployed workers and the command line share it. It needs the extra `cli` or `worker`.
"""
