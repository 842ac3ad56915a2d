"""Pipelines that cannot work: what is written after the three lines that all begin with, where it is wrong, and why."""

SQL = 'pipeline.sql("gold.a", '

# Each by the number of the line that is to be named; the head has three.
BAD_FILES: dict[str, tuple[str, int, str]] = {
    "a circle of two": (
        'pipeline.sql("gold.a", "SELECT * FROM gold.b")\npipeline.sql("gold.b", "SELECT * FROM gold.a")\n',
        4,
        "gold.a reads gold.b reads gold.a",
    ),
    "a circle of one": ('pipeline.sql("gold.a", "SELECT * FROM gold.a")\n', 4, "gold.a reads gold.a"),
    "a circle behind others": (
        'pipeline.sql("gold.z", "SELECT * FROM gold.c")\n'
        'pipeline.sql("gold.a", "SELECT * FROM gold.b")\n'
        'pipeline.sql("gold.b", "SELECT * FROM gold.c")\n'
        'pipeline.sql("gold.c", "SELECT * FROM gold.a")\n',
        5,
        "gold.a reads gold.b reads gold.c reads gold.a",
    ),
    "a missing input": (SQL + '"SELECT * FROM bronze.nothing")\n', 4, "reads 'bronze.nothing', which is neither"),
    "a missing input of a function": (
        '@pipeline.table("gold.a", inputs=["bronze.nothing"])\ndef a(nothing): ...\n',
        4,
        "reads 'bronze.nothing', which is neither",
    ),
    "a missing table of a check": (
        SQL + '"SELECT 1 AS one")\npipeline.check("none", "FROM bronze.nothing")\n',
        5,
        "the check 'none' reads 'bronze.nothing'",
    ),
    "an output twice": (
        SQL + '"SELECT 1 AS one")\n' + SQL + '"SELECT 2 AS two")\n',
        5,
        "the output 'gold.a' is declared twice, first at {file}:4",
    ),
    "a check twice": (
        'pipeline.check("c", "SELECT 1 WHERE false")\npipeline.check("c", "SELECT 1 WHERE false")\n',
        5,
        "the check 'c' is declared twice, first at {file}:4",
    ),
    "SQL that does not parse": (SQL + '"SELECT (1 AS one")\n', 4, "the SQL does not parse"),
    "SQL that does not parse, some lines below": (
        SQL + '"""\n    SELECT id,\n    FROM bronze.orders\n    WHERE (id\n""")\n',
        7,
        "the SQL does not parse",
    ),
    "SQL of an open quote": (SQL + '"SELECT \'one")\n', 4, "the SQL does not parse"),
    "SQL of a check that does not parse": ('pipeline.check("c", "SELEC 1")\n', 4, 'at or near "SELEC"'),
    "a check that writes": ('pipeline.check("c", "DELETE FROM bronze.orders")\n', 4, "DELETE is not allowed"),
    "SQL that writes": (SQL + '"INSERT INTO bronze.orders SELECT 1")\n', 4, "it begins with INSERT"),
    "SQL that drops": (SQL + '"DROP TABLE bronze.orders")\n', 4, "it begins with DROP"),
    "SQL that is no word of it": (SQL + '"SELEC one")\n', 4, "it begins with SELEC"),
    "no SQL": (SQL + '"-- nothing")\n', 4, "there is no SQL"),
    "SQL that is no text": (SQL + "7)\n", 4, "7 is not SQL"),
    "two statements": (SQL + '"SELECT 1; SELECT 2")\n', 4, "several SQL statements"),
    "a name without a bucket": (SQL + '"SELECT * FROM orders")\n', 4, "table name 'orders'"),
    "a name with a catalog": (SQL + '"SELECT * FROM a.b.c")\n', 4, "table name 'a.b.c'"),
    "a file instead of a table": (SQL + '"SELECT * FROM parquet.`/etc/passwd`")\n', 4, "'/etc/passwd'"),
    "a table of another time": (SQL + '"SELECT * FROM bronze.orders VERSION AS OF 1")\n', 4, "another time"),
    "a table by a hidden name": (SQL + "\"SELECT * FROM IDENTIFIER('a.b')\")\n", 4, "hides which table"),
    "an unknown parameter": (SQL + '"SELECT :until AS day")\n', 4, "names the parameter ':until'"),
    "a parameter without a name": (SQL + '"SELECT ? AS day")\n', 4, "'?' without a name"),
    "a bad key": ('pipeline.sql("gold/a", "SELECT 1 AS one")\n', 4, "table name 'gold/a'"),
    "a bad input": ('@pipeline.table("gold.a", inputs=["orders"])\ndef a(orders): ...\n', 4, "table name 'orders'"),
    "inputs that are no list": (
        '@pipeline.table("gold.a", inputs="bronze.orders")\ndef a(orders): ...\n',
        4,
        "the list of inputs is 'bronze.orders'",
    ),
    "an input twice": (
        '@pipeline.table("gold.a", inputs=["bronze.orders", "bronze.orders"])\ndef a(x, y): ...\n',
        4,
        "names one twice",
    ),
    "an upsert without a key": (SQL + '"SELECT 1 AS one", write="upsert")\n', 4, "an upsert needs a primary key"),
    "an unknown way to write": (SQL + '"SELECT 1 AS one", write="merge")\n', 4, "cannot be written by 'merge'"),
    "another key than the table has": (
        'pipeline.sql("bronze.customers", "SELECT * FROM bronze.orders", primary_key=["name"])\n',
        4,
        "the primary key of 'bronze.customers' is id on the branch, not name",
    ),
    "an incremental input that is none": (
        SQL + '"SELECT * FROM bronze.orders", write="append", incremental=["bronze.customers"])\n',
        4,
        "'bronze.customers' is called incremental, and is not an input of 'gold.a'",
    ),
    "an incremental input of what is rebuilt": (
        SQL + '"SELECT * FROM bronze.orders", incremental=["bronze.orders"])\n',
        4,
        "'gold.a' is rebuilt",
    ),
    "too few inputs for a function": (
        '@pipeline.table("gold.a", inputs=["bronze.orders"])\ndef a(orders, customers): ...\n',
        4,
        "a() takes 2 inputs (orders, customers), and 1 are declared (bronze.orders)",
    ),
    "too many inputs for a function": (
        '@pipeline.table("gold.a", inputs=["bronze.orders"])\ndef a(): ...\n',
        4,
        "a() takes 0 inputs (none), and 1 are declared",
    ),
    "a parameter that a function alone knows": (
        '@pipeline.table("gold.a")\ndef a(*, until): ...\n',
        4,
        "a() takes 'until', which is not a parameter",
    ),
    "a type that no parameter has": ('ab.Pipeline("b", parameters={"x": [1]})\n', 4, "the parameter 'x' is [1]"),
    "a name that no parameter has": ('ab.Pipeline("b", parameters={"a b": 1})\n', 4, "be called 'a b'"),
    "the name of the session": ('ab.Pipeline("b", parameters={"spark": 1})\n', 4, "be called 'spark'"),
    "a pipeline without a name": ('ab.Pipeline(" ")\n', 4, "a pipeline cannot be called ' '"),
    "a check without a name": ('pipeline.check("", "SELECT 1")\n', 4, "a check cannot be called ''"),
    "Python that does not parse": ("def a(:\n", 4, "invalid syntax"),
    "Python that raises": ("def a():\n    return 1 / 0\n\n\na()\n", 5, "ZeroDivisionError: division by zero"),
    "a method that does not exist": ('pipeline.view("gold.a")\n', 4, "AttributeError"),
}
