"""The procedures of `CALL lake.system.NAME(...)`: their parameters, the columns of their answers, and what they do.

The catalog asks for the table of them, and then runs each procedure by its name. All work is done in this process: no
procedure starts a Spark session of its own. Start reading at `procedure`. The gateway's server lists and runs them.
"""
