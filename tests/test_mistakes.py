"""What a new user does wrong in the first hour, and the exact message that answers it.

All mistakes are made on one sample lake, and change nothing in it.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import anabranch as ab
from anabranch.config import ACTOR_VARIABLE, BRANCH_VARIABLE, REPOSITORY_VARIABLE, remember
from tests.command_line import invoke

FILES = {
    "semicolons.csv": "id;name\n60;Zoe\n",
    "bad.csv": "id,name,city,email\n60,Zoe,Brno,z@example.com\n61,Max\n",
    "decided.json": "price: max",
    "undecided.json": '[{"table": "shop.products", "key": {"id": 1}, "column": "price"}]',
    "one.csv": "id,name,category,price\n1,tea,food,1\n",
    "json.csv": '[{"id": 61, "name": "Ida"}]\n',
    "csv.json": "id,name\n60,Zoe\n",
    "quoted.csv": '"id"\t"name"\n60\t"Zoe"\n',
    "latin.csv": "id,name,city,email\n60,Zoe,M\u00fcnchen,z\n",
    "open.csv": 'id,name,city,email\n60,"Zoe,Brno,z\n61,Max,Brno,m\n',
    "trailing.csv": "id,name,city,email,\n60,Zoe,Brno,z,\n",
    "empty.csv": "",
    "sheet.xlsx": "PK",
    "notes.txt": "id,name\n",
}

# Python, and the text of the error that it raises. FOLDER is the folder of the lake, ID an id.
IN_PYTHON = {
    'ab.open("lakes")': (
        "there is no repository at 'FOLDER/lakes'; check the path, or create one with `init('FOLDER/lakes')`"
    ),
    'ab.open("lake", branch="slae")': (
        "there is no branch 'slae'; did you mean 'sale'? the branches are 'main', 'preview', 'sale'"
    ),
    'repo["shop.order"]': (
        "there is no table 'shop.order' in commit ID; did you mean 'shop.orders'? list the tables with `tables()`"
    ),
    'repo["orders"]': "table name 'orders' has no bucket; did you mean 'shop.orders'?",
    'repo.table("shop.orders", ref="v1")': (
        "there is no branch, tag or commit 'v1'; did you mean 'v1.0'? see `branch_list()`, `tag_list()` and "
        "`list_commits()`"
    ),
    'repo.snapshot_of("main@{yesterday}")': (
        "ref 'main@{yesterday}' contains the invalid time 'yesterday'; write it like '2026-11-15' or "
        "'2026-11-15T10:00:00Z'"
    ),
    'repo.table("shop.orders", ref="2026-11-19")': (
        "there is no branch, tag or commit '2026-11-19'; for the state of a branch at a time, write 'main@{2026-11-19}'"
    ),
    'repo.table("shop.orders", ref="2026-11-19 23:00:45")': (
        "ref '2026-11-19 23:00:45' contains the name '2026-11-19 23:00:45', which contains ' :'; for the state of a "
        "branch at a time, write 'main@{2026-11-19 23:00:45}'"
    ),
    "repo.sql(\"SELECT * FROM shop.orders AT '2026-11-19T23:00:45Z'\")": (
        "ref '2026-11-19T23:00:45Z' contains the name '2026-11-19T23:00:45Z', which contains ':'; for the state of a "
        "branch at a time, write 'main@{2026-11-19T23:00:45Z}'"
    ),
    'repo.snapshot_of("main~99")': "main~99 goes back before the first commit; go back at most 8 commits",
    'repo.snapshot_of("v1.0")["shop.reviews"]': (
        "there is no table 'shop.reviews' in commit ID; list the tables with `tables()`"
    ),
    'repo["shop.orders"].to_arrow(columns=["amont"])': (
        "there is no column 'amont'; did you mean 'amount'? the columns are id, customer_id, product_id, "
        "quantity, amount, status, ordered_at"
    ),
    'repo["shop.orders"].to_arrow(columns="id")': "columns must be a list, got 'id'; pass ['id']",
    'repo["shop.orders"].to_arrow(where="status = open")': (
        "the filter 'status = open' does not work here: there is no column 'open'; the columns are id, "
        "customer_id, product_id, quantity, amount, status, ordered_at; write text in single quotes: 'open'"
    ),
    'repo["shop.orders"].to_arrow(where="amount > \'ten\'")': (
        "the filter \"amount > 'ten'\" does not work here: the text 'ten' is not of the type decimal(10, 2); "
        "text is not compared with other types: write a value of the column's type"
    ),
    'repo.sql("SELECT amont FROM shop.orders")': (
        'the SQL does not work: Binder Error: Referenced column "amont" not found in FROM clause! Candidate '
        'bindings: "amount", "quantity", "status", "product_id", "customer_id"; did you mean \'amount\'? correct '
        "the SQL"
    ),
    'repo.sql("SELECT * FROM shop.ordes")': (
        "there is no table 'shop.ordes' in 'main'; did you mean 'shop.orders'? SELECT * FROM tables lists "
        "those that exist"
    ),
    'repo.sql("DELETE FROM shop.orders")': (
        "DELETE is not allowed: SQL here only reads; use SELECT, or `delete()` to delete rows"
    ),
    'repo.append("shop.products", [{"id": 1, "name": "green tea"}])': (
        "1 key already exists in the table, for example {'id': 1}; change these rows with `upsert()`, or remove "
        "them from the data"
    ),
    'repo.append("shop.products", [{"id": 50, "prise": 3}])': (
        "there is no column 'prise'; did you mean 'price'? the columns are id, name, category, price"
    ),
    'repo.append("shop.products", [{"id": "fifty"}])': (
        "cannot convert 'fifty' to int64 (column 'id', row 0); correct the value, or change the column's type first"
    ),
    'repo.append("shop.products", {"id": [50], "name": "jam"})': (
        "the values of column 'name' are 'jam', not a list; pass a dict of lists such as {'id': [1, 2]}, or a "
        "list of dicts such as [{'id': 1}]"
    ),
    'repo.append("shop.products", "products.csv")': (
        "cannot read rows from 'products.csv' (str); pass a pyarrow Table, RecordBatch, RecordBatchReader or "
        "Dataset, a pandas or polars frame, or a list of dicts; `load()` reads files"
    ),
    'repo.append("shop.products", frame[frame.id > 50].assign(note=1))': (
        "column 'note' (found int64) is not expected: the columns are 'id', 'name', 'category', 'price'; drop "
        "it from the data, or add the column to the table first"
    ),
    'repo.append("shop.products", [{"id": 77}], branch="v1.0")': (
        "there is no branch 'v1.0'; a tag does not move: make a branch from it with `branch_create('NAME', "
        "source='v1.0')`"
    ),
    'repo.update("shop.products", {"price": "1.00"})': (
        "the update has no predicate; pass `where=...`, or `where='true'` to update all rows"
    ),
    'repo.update("shop.products", {"name": "tea"}, "id = 1")': (
        "expression 'tea' does not work: there is no column 'tea'; the columns are id, name, category, price; "
        "write text in single quotes: 'tea'"
    ),
    'repo.update("shop.products", {"id": "2"}, "id = 1")': (
        "column 'id' is part of the primary key of 'shop.products'; delete the rows and append new ones"
    ),
    'repo.update("shop.products", {"price": 3}, "id = 1")': (
        "expression 3 is not text; write SQL in a string, such as '3'"
    ),
    'repo.update("shop.products", {"price": "price * 1.1"}, "id = 1")': (
        "expression 'price * 1.1' does not work: the number 1.1 is not of the type decimal(10, 2); write the "
        "number as a decimal: CAST('1.1' AS DECIMAL(10, 2))"
    ),
    'repo["shop.orders"].to_arrow(where="amount > 10.125")': (
        "the filter 'amount > 10.125' does not work here: the number 10.125 is not of the type decimal(10, 2); "
        "write the number as a decimal: CAST('10.125' AS DECIMAL(11, 3))"
    ),
    'repo["shop.orders"].to_arrow(where="id = 1.5")': (
        "the filter 'id = 1.5' does not work here: the number 1.5 is not of the type int64; write a value of the "
        "column's type, or cast the column: CAST(column AS DOUBLE)"
    ),
    'repo.upsert("shop.products", [{"id": 1, "price": 2.5}])': (
        "cannot convert 2.5 to decimal(10, 2) (column 'price', row 0); pass a decimal.Decimal, such as Decimal('2.5')"
    ),
    'repo.sql("SELECT * FROM shop.orders WHERE id = ?")': (
        "the SQL does not work: Invalid Input Error: Values were not provided for the following prepared statement "
        "parameters: 1; pass a value for each parameter of the SQL"
    ),
    'repo.load("shop.customers", "https://example.com/a.csv")': (
        "'https://example.com/a.csv' is a web address; download the file first, and load it from there"
    ),
    'ab.init("~/lake")': "path '~/lake' begins with '~', which is not replaced here; write the whole path",
    'repo.merge("sale")': (
        "the merge of 'sale' into 'main' has 1 conflict, in 'shop.products' (1); nothing was merged; list the "
        "conflicts with `conflicts('sale', into='main')`, then merge again with `resolvers`, `resolutions` or "
        "`strategy`"
    ),
    'repo.merge("sale", resolvers={"price": "maximum"})': (
        "unknown resolver 'maximum' for 'price'; did you mean 'max'? use source, target, max, min, sum_delta, "
        "concat, or latest_by(column)"
    ),
    'repo.merge("sale", resolvers={"prise": "max"})': (
        "the resolver 'prise' matches no table and no column; did you mean 'price'? name a table, a column, or "
        "a column of a table, such as 'shop.orders.price'"
    ),
    'repo.merge("sale", resolutions=\'[{"table": "shop.products"}]\')': (
        "resolutions must be a list, got '[{\"table\": \"shop.products\"}]'; pass for example [{'table': "
        "'shop.orders', 'key': {'id': 2}, 'column': 'amount', 'take': 'source'}]"
    ),
    'repo.branch_create("my branch")': (
        "branch name 'my branch' contains ' '; use only ASCII letters, digits, '.', '-', '_', and '/' between segments"
    ),
    'repo.branch_delete("main")': "branch 'main' cannot be deleted; move it to another commit with `reset()`",
    'repo.branch_restore("new-customer")': (
        "there never was a branch 'new-customer'; did you mean 'new-customers'? list the deleted branches "
        "with `branch_list(deleted=True)`"
    ),
    'repo.tag_create("v1.0")': "there is a tag 'v1.0' already, on ID; delete it first, or choose another name",
    'repo.entity_at("shop.orders", "7")': (
        "'7' is not a value of the key column 'id', which is int64; give one of the column's type"
    ),
    'repo.load("shop.customers", "semicolons.csv")': (
        "the header of 'FOLDER/semicolons.csv', line 1, is one column 'id;name' with the delimiter ','; pass "
        "`csv=CsvOptions(delimiter=';')`, or quote the name in the file if it is one column"
    ),
    'repo.load("shop.customers", "semicolons.csv", csv=ab.CsvOptions(delimiter="|"))': (
        "the header of 'FOLDER/semicolons.csv', line 1, is one column 'id;name' with the delimiter '|'; pass "
        "`csv=CsvOptions(delimiter=';')`, or quote the name in the file if it is one column"
    ),
    'repo.load("shop.customers", "json.csv")': (
        '\'FOLDER/json.csv\' looks like JSON, not CSV: it begins with [{"id": 61, "name": "Ida"}]; pass '
        "`format='json'`"
    ),
    'repo.load("shop.customers", "csv.json")': (
        "'FOLDER/csv.json' looks like CSV, not JSON: it begins with id,name; pass `format='csv'`"
    ),
    'repo.load("shop.customers", "latin.csv")': (
        "FOLDER/latin.csv, line 2: column 'city': invalid UTF8 data: '60,Zoe,M\\\\xfcnchen,z'; pass the encoding of "
        "the file, such as `csv=CsvOptions(encoding='latin-1')`, or leave bad records out with `on_bad='reject'`"
    ),
    'repo.load("shop.customers", "empty.csv")': (
        "'FOLDER/empty.csv' is empty; write a header with the columns id, name, city, email, or leave it out"
    ),
    'repo.load("shop.customers", "sheet.xlsx")': (
        "'sheet.xlsx' is a spreadsheet; save the sheet as CSV, and load that file"
    ),
    'repo.load("shop.customers", "notes.txt")': (
        "the name 'notes.txt' does not have the suffix of a format; pass the format of its content with "
        "`format=...`: csv, json, parquet, orc or lance"
    ),
    'repo.load("shop.customers", "bad.csv", primary_key=["email"])': (
        "the primary key of 'shop.customers' is id, not email; leave `primary_key` out, or change the key with "
        "`set_primary_key()`"
    ),
    "repo.sql('SELECT id FROM shop.orders WHERE status = \"open\"')": (
        'the SQL does not work: Binder Error: Referenced column "open" not found in FROM clause! Candidate '
        'bindings: "amount", "ordered_at", "customer_id"; write text in single quotes: \'open\''
    ),
    'repo.sql("SELECT * FROM shop.orders AT sale")': (
        "the SQL does not work: syntax error at or near \"sale\"; write the ref in quotes: AT 'sale'"
    ),
    'repo.sql("SELECT * FROM shop.orders@sale")': (
        'the SQL does not work: syntax error at or near "@"; for another branch, tag or commit, write AT and the '
        "ref in quotes, such as shop.orders AT 'main~3'"
    ),
    'repo.sql("SELECT * FROM sale.shop.orders")': (
        "there is no table 'sale.shop.orders'; write its bucket and name, such as shop.orders; for another branch "
        "add AT 'sale'"
    ),
    "repo.sql(\"SELECT * FROM 'one.csv'\")": (
        "there is no table 'one.csv' in 'main'; SQL reads only tables of the repository: load the file into one "
        "with `load()`"
    ),
    'repo.load("new.table", "bad.csv", primary_key="id")': "primary_key must be a list, got 'id'; pass ['id']",
    'repo.index("shop.orders", "customer_id", type="b-tree")': (
        "unknown index type 'b-tree'; did you mean 'btree'? use btree, bitmap, label_list, ngram, zonemap, "
        "bloomfilter, inverted, ivf_flat, ivf_pq, ivf_sq, ivf_hnsw_flat, ivf_hnsw_pq, ivf_hnsw_sq"
    ),
    "repo.gc(keep_newer_than=30)": (
        "keep_newer_than must be a duration of 0 or more, got 30; pass a datetime.timedelta, such as timedelta(days=30)"
    ),
    'repo["shop.product_vectors"].nearest("embedding", [1, 2])': (
        "the vector has 2 dimensions, and column 'embedding' expects 4; pass 4 numbers"
    ),
    'repo.transaction("main").create_table("new.table", repo["shop.orders"].schema, primary_key=["ID"])': (
        "the primary key of 'new.table' names the column 'ID', which is not there; did you mean 'id'? the "
        "columns are id, customer_id, product_id, quantity, amount, status, ordered_at"
    ),
    "ended.commit()": "this transaction has ended: it was committed or rolled back; begin another transaction",
}

# A command, and what it prints on stderr.
ON_THE_COMMAND_LINE = {
    "sttaus": (
        "no such command 'sttaus'. Did you mean 'status'?",
        "see 'anabranch --help'",
    ),
    "log --grph": (
        "no such option: --grph (Possible options: --graph, --repo)",
        "see 'anabranch log --help'",
    ),
    "commit": (
        "there is no command 'commit'",
        (
            "every command that changes data makes its own commit, such as 'anabranch row update' or "
            "'anabranch load'; see them with 'anabranch log'"
        ),
    ),
    "diff slae": (
        "there is no branch, tag or commit 'slae'",
        "did you mean 'sale'? see 'anabranch branch list', 'anabranch tag list' and 'anabranch log'",
    ),
    "merge slae": (
        "there is no branch, tag or commit 'slae'",
        "did you mean 'sale'? see 'anabranch branch list', 'anabranch tag list' and 'anabranch log'",
    ),
    "merge sale --resolve price": (
        "--resolve 'price' is not of the form WHAT=HOW",
        "write it like --resolve price=max",
    ),
    "merge sale --resolve price=maximum": (
        "unknown resolver 'maximum' for 'price'",
        "did you mean 'max'? use source, target, max, min, sum_delta, concat, or latest_by(column)",
    ),
    "merge sale --strategy theirs": (
        "unknown strategy 'theirs'",
        "use one of fail, source, target",
    ),
    "merge sale --resolutions decided.json": (
        "the resolutions 'decided.json' cannot be read: Expecting value: line 1 column 1 (char 0)",
        "write a JSON list of conflicts, each with 'take' or 'value', or CSV with the key in JSON",
    ),
    "merge sale --into v1.0": (
        "there is no branch 'v1.0'",
        "a tag does not move: make a branch from it with 'anabranch branch create NAME --from v1.0'",
    ),
    "switch slae": (
        "there is no branch 'slae'",
        "did you mean 'sale'? the branches are 'main', 'preview', 'sale'",
    ),
    "branch create 'my branch'": (
        "branch name 'my branch' contains ' '",
        "use only ASCII letters, digits, '.', '-', '_', and '/' between segments",
    ),
    "branch restore new-customer": (
        "there never was a branch 'new-customer'",
        "did you mean 'new-customers'? list the deleted branches with 'anabranch branch list --deleted'",
    ),
    "tag delete v1": (
        "there is no tag 'v1'",
        "did you mean 'v1.0'? list the tags with 'anabranch tag list'",
    ),
    "reset slae": (
        "there is no branch, tag or commit 'slae'",
        "did you mean 'sale'? see 'anabranch branch list', 'anabranch tag list' and 'anabranch log'",
    ),
    "show 'main@{yesterday}'": (
        "ref 'main@{yesterday}' contains the invalid time 'yesterday'",
        "write it like '2026-11-15' or '2026-11-15T10:00:00Z'",
    ),
    "cat orders": (
        "table name 'orders' has no bucket",
        "did you mean 'shop.orders'?",
    ),
    "cat shop.orders --columns id,amont": (
        "there is no column 'amont'",
        "did you mean 'amount'? the columns are id, customer_id, product_id, quantity, amount, status, ordered_at",
    ),
    "cat shop.orders --where 'amount > 10.5'": (
        "the filter 'amount > 10.5' does not work here: the number 10.5 is not of the type decimal(10, 2)",
        "write the number as a decimal: CAST('10.5' AS DECIMAL(10, 2))",
    ),
    "cat shop.orders --where 'status = open'": (
        "the filter 'status = open' does not work here: there is no column 'open'",
        (
            "the columns are id, customer_id, product_id, quantity, amount, status, ordered_at; write text in "
            "single quotes: 'open'"
        ),
    ),
    "table history shop.order": (
        "no commit of 'main' changed a table 'shop.order'",
        "did you mean 'shop.orders'? list the tables with 'anabranch table list'",
    ),
    "load shop.customers semicolons.csv": (
        "the header of 'FOLDER/semicolons.csv', line 1, is one column 'id;name' with the delimiter ','",
        "pass --delimiter ';', or quote the name in the file if it is one column",
    ),
    "load shop.customers bad.csv --delimiter ';'": (
        "the header of 'FOLDER/bad.csv', line 1, is one column 'id,name,city,email' with the delimiter ';'",
        "pass --delimiter ',', or quote the name in the file if it is one column",
    ),
    "load shop.customers quoted.csv": (
        "the header of 'FOLDER/quoted.csv', line 1, cannot be read with the delimiter ','",
        "pass --delimiter tab",
    ),
    "load shop.customers json.csv": (
        '\'FOLDER/json.csv\' looks like JSON, not CSV: it begins with [{"id": 61, "name": "Ida"}]',
        "pass --format json",
    ),
    "load shop.customers ones.csv": (
        "there is nothing to load at 'ones.csv'",
        "did you mean 'one.csv'? check the path and the format",
    ),
    "load one.csv shop.products": (
        "'one.csv' is a file, and the table comes first",
        "use 'anabranch load shop.products one.csv'",
    ),
    "export new.csv shop.products": (
        "'shop.products' is a table, and the table comes first",
        "use 'anabranch export shop.products new.csv'",
    ),
    "export shop.products products": (
        "the name 'FOLDER/products' does not have the suffix of a format",
        "end the name with a suffix such as .csv, or pass --format FORMAT: csv, json, parquet, orc or lance",
    ),
    "load shop.customers latin.csv": (
        "FOLDER/latin.csv, line 2: column 'city': invalid UTF8 data: '60,Zoe,M\\\\xfcnchen,z'",
        "pass the encoding of the file, such as --encoding latin-1, or leave bad records out with --on-bad reject",
    ),
    "load shop.customers open.csv": (
        "FOLDER/open.csv, line 2: a quote is not closed, or text follows a closing one: '60,\"Zoe,Brno,z'",
        ("correct the record, pass --quote '' if quotes are plain text, or leave bad records out with --on-bad reject"),
    ),
    "load shop.customers trailing.csv": (
        "column 5 in the header of 'FOLDER/trailing.csv', line 1, has no name",
        "name it in the file, or remove the delimiter at the end of its lines",
    ),
    "row insert shop.products one.csv": (
        "'one.csv' is not JSON: Expecting value: line 1 column 1 (char 0)",
        "load a file with 'anabranch load shop.products one.csv'",
    ),
    'row insert shop.products \'{"id": 50, "prise": 3}\'': (
        "table 'shop.products' has no column 'prise'",
        "did you mean 'price'? the columns are id, name, category, price",
    ),
    'row insert shop.products \'{"id": "x"}\'': (
        "cannot convert 'x' to int64 (column 'id')",
        "pass a value of the column's type",
    ),
    "row delete shop.products 'id = 7'": (
        "got unexpected extra argument(s) (id = 7)",
        "use --where 'id = 7'",
    ),
    "sql one.csv": (
        "'one.csv' is a file, not a SQL statement",
        "run the SQL in it with 'anabranch sql < one.csv'; rows of a file are queried after 'anabranch load'",
    ),
    "sql 'SELECT * FROM shop.orders AT sale'": (
        'the SQL does not work: syntax error at or near "sale"',
        "write the ref in quotes: AT 'sale'",
    ),
    "sql 'SELECT * FROM shop.orders AT main~1 WHERE id = 1'": (
        'the SQL does not work: syntax error at or near "main"',
        "write the ref in quotes: AT 'main~1'",
    ),
    "sql 'SELECT * FROM shop.orders AT main@v3, shop.orders AT main'": (
        'the SQL does not work: syntax error at or near "main"',
        "write the ref in quotes: AT 'main@v3'",
    ),
    "sql 'SELECT * FROM (SELECT * FROM shop.orders AT main@{2026-11-15 10:00})'": (
        'the SQL does not work: syntax error at or near "main"',
        "write the ref in quotes: AT 'main@{2026-11-15 10:00}'",
    ),
    "sql 'SELECT * FROM shop.orders AT \"main~1\"'": (
        'the SQL does not work: syntax error at or near ""main~1""',
        "write the ref in quotes: AT 'main~1'",
    ),
    "sql 'SELECT * FROM shop.orders AT 2026-11-15 10:00'": (
        'the SQL does not work: syntax error at or near "2026"',
        "write the ref in quotes: AT 'main@{2026-11-15 10:00}'",
    ),
    "sql \"SELECT * FROM shop.orders AT '2026-11-19'\"": (
        "there is no branch, tag or commit '2026-11-19'",
        "for the state of a branch at a time, write 'main@{2026-11-19}'",
    ),
    "table show shop.orders --ref '2026-11-19 23:00:45'": (
        "ref '2026-11-19 23:00:45' contains the name '2026-11-19 23:00:45', which contains ' :'",
        "for the state of a branch at a time, write 'main@{2026-11-19 23:00:45}'",
    ),
    "branch create dev main": ("got unexpected extra argument(s) (main)", "use --from main"),
    "tag create v2.0 main~1": ("got unexpected extra argument(s) (main~1)", "use --ref main~1"),
    "diff main sale shop.products": (
        "got unexpected extra argument(s) (shop.products)",
        "use --table shop.products",
    ),
    "switch main~1": (
        "'main~1' is an older state, not a branch",
        "make a branch from it with 'anabranch switch -c NAME --from main~1', or read it with --ref main~1",
    ),
    "table create shop.new id name": (
        "column 'id' is not of the form COLUMN=TYPE",
        "write it like id=int64",
    ),
    "ls": (
        "there is no command 'ls'",
        "use 'anabranch table list', 'anabranch branch list' or 'anabranch tag list'",
    ),
    "load shop.customers bad.csv": (
        "FOLDER/bad.csv, line 3: it has 2 values for 4 columns: '61,Max'",
        "correct the record, or leave bad records out with --on-bad reject",
    ),
    "load shop.customers nothing.csv": (
        "there is nothing to load at 'nothing.csv'",
        "check the path and the format",
    ),
    "export shop.orders bad.csv": (
        "the file 'FOLDER/bad.csv' already exists",
        "name another file, or pass --overwrite",
    ),
    "schema apply nothing.yml": (
        "there is no schema file 'nothing.yml'",
        "check the path",
    ),
    "pipeline run nothing.py": (
        "there is no file 'nothing.py'",
        "name the file of a pipeline",
    ),
    "gc --keep-newer-than 30": (
        "--keep-newer-than '30' is not a time span",
        "pass a number and a unit: 90s, 30m, 12h, 30d or 4w",
    ),
    "cat sensors": ("table name 'sensors' has no bucket", "write it like 'shop.sensors'"),
    "sql 'UPDATE shop.orders SET amount = 1'": (
        "UPDATE is not allowed: SQL here only reads",
        "use SELECT, or 'anabranch row update' to change rows",
    ),
    "row insert shop.products '{\"id\": 1}'": (
        "1 key already exists in the table, for example {'id': 1}",
        "change these rows with 'anabranch row insert --upsert', or remove them from the data",
    ),
    "load shop.products one.csv": (
        "1 key already exists in the table, for example {'id': 1}",
        "change these rows with --mode upsert, or remove them from the data",
    ),
    "row update shop.products --set name --where true": (
        "--set 'name' is not of the form COLUMN=SQL",
        "write it like --set 'price=price * 2'",
    ),
    "row update shop.products --set 'price=1, name=2' --where 'id = 1'": (
        "expression '1, name=2' does not work: it is not one expression",
        "repeat --set for each column",
    ),
    "log --table shop.order": (
        "no commit of 'main' changed a table 'shop.order'",
        "did you mean 'shop.orders'? list the tables with 'anabranch table list'",
    ),
    "merge sale --resolutions undecided.json": (
        "no entry of the resolutions 'undecided.json' has 'take' or 'value'",
        "add 'take' (source, target or base) or 'value' to each conflict that you decide",
    ),
    "branch -d sale": ("there is no option -d", "use 'anabranch branch delete sale'"),
    "reset sale --to main~1": ("there is no option --to", "use 'anabranch reset main~1 --branch sale'"),
    "reset sale --to=main~1": ("there is no option --to", "use 'anabranch reset main~1 --branch sale'"),
    "rebase --onto main sale": ("there is no option --onto", "use 'anabranch rebase main --branch sale'"),
    "cat a.b.c": (
        "table name 'a.b.c' does not have the form 'bucket.table'",
        "write the bucket and the table with one dot between them, such as 'shop.orders'",
    ),
    "tag -d v1.0": ("there is no option -d", "use 'anabranch tag delete v1.0'"),
    "branch delete v1.0": ("there is no branch 'v1.0'", "it is a tag: use 'anabranch tag delete v1.0'"),
    "reset --hard v1.0": (
        "there is no option --hard",
        "there are no uncommitted changes: use 'anabranch reset v1.0'",
    ),
    "cat shop.orders --branch sale": ("there is no option --branch", "use --ref sale"),
    "init": (
        "this folder works with the repository 'FOLDER/lake' already",
        "see it with 'anabranch status'; to make another one, pass its path, such as 'anabranch init other'",
    ),
    "run show 01M7": (
        "run id '01M7' is not valid",
        "copy the 26 characters that the list of runs shows",
    ),
    "undo --steps x": ("invalid value for '--steps': 'x' should be a valid integer", "see 'anabranch undo --help'"),
    "undo --steps 0": (
        "invalid value for '--steps': '0' should be greater than or equal to 1",
        "see 'anabranch undo --help'",
    ),
    "--repo lake log --limit 3": (
        "there is no option --repo",
        "options come after the command: 'anabranch log --limit 3 --repo lake'",
    ),
    "-o aws_secret_access_key=abc log": (
        "there is no option -o",
        "options come after the command: 'anabranch log -o aws_secret_access_key=...'",
    ),
    "--repo lake log -o aws_secret_access_key=abc": (
        "there is no option --repo",
        "options come after the command: 'anabranch log -o aws_secret_access_key=... --repo lake'",
    ),
    "--nothing": ("no such option: --nothing", "see 'anabranch --help'"),
    "log HEAD": (
        "there is no branch, tag or commit 'HEAD'",
        "write the name of a branch, such as main or main~1; without a ref, the current branch counts",
    ),
    "cat shop.orders --ref HEAD~1": (
        "there is no branch, tag or commit 'HEAD'",
        "write the name of a branch, such as main or main~1; without a ref, the current branch counts",
    ),
    "show main~99": ("main~99 goes back before the first commit", "go back at most 8 commits"),
    "cat shop.orders --where 'id = '": (
        "the filter 'id = ' does not work here: Expected: an expression, found: the end or ')'",
        "correct it: write an SQL expression over the columns, with text in single quotes",
    ),
    "row delete shop.orders --where 'id = 1 LIMIT 1'": (
        "expression 'id = 1 LIMIT 1' does not work: Expected: an operator or the end, found: LIMIT",
        "correct it: write an SQL expression over the columns, with text in single quotes",
    ),
    'cat shop.products --where "name = \'x"': (
        'the filter "name = \'x" does not work here: Unterminated string literal',
        "correct it: write an SQL expression over the columns, with text in single quotes",
    ),
    "cat shop.products --where 'name = 1'": (
        "the filter 'name = 1' does not work here: the number 1 is not of the type string",
        "correct it: write an SQL expression over the columns, with text in single quotes",
    ),
    "cat shop.products --where \"id = DATE 'x'\"": (
        "the filter \"id = DATE 'x'\" does not work here: Cast error: Cannot cast string 'x' to value of date32 type",
        "correct it: write an SQL expression over the columns, with text in single quotes",
    ),
    "cat shop.products --where 'CAST(id AS foo) = 1'": (
        "the filter 'CAST(id AS foo) = 1' does not work here: Unsupported data type: foo. Supported types:"
        ' ["int [unsigned]", "tinyint [unsigned]", "smallint [unsigned]", "bigint [unsigned]", "float", "double",'
        ' "string", "binary", "date", "timestamp(precision)", "datetime(precision)", "decimal(precision,scale)",'
        ' "boolean"]',
        "correct it: write an SQL expression over the columns, with text in single quotes",
    ),
    "init lake": (
        "a repository already exists at 'FOLDER/lake'",
        "use it, or choose another folder",
    ),
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    repo = ab.demo(folder)
    remember(repository=repo.uri, branch="main", folder=folder)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="latin-1")
    return folder


@pytest.fixture(autouse=True)
def here(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in (REPOSITORY_VARIABLE, BRANCH_VARIABLE, ACTOR_VARIABLE, "ANABRANCH_STORAGE_OPTIONS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(shop)
    return shop


def shown(text: str, folder: Path) -> str:
    return re.sub(r"\b01[0-9A-Z]{24}\b", "ID", text.replace(str(folder), "FOLDER"))


def state_of(folder: Path) -> object:
    repo = ab.open(folder / "lake")
    return [branch.head_commit_id for branch in repo.branch_list()], repo.tag_list(), sorted(map(str, folder.iterdir()))


def test_there_are_more_than_40_mistakes() -> None:
    assert len(IN_PYTHON) >= 40
    assert len(ON_THE_COMMAND_LINE) >= 25


@pytest.mark.parametrize("typed", IN_PYTHON)
def test_a_mistake_in_python(typed: str, here: Path) -> None:
    before = state_of(here)
    repo = ab.open("lake", actor="ada")
    ended = repo.transaction()
    ended.rollback()
    names: dict[str, Any] = {"ab": ab, "repo": repo, "frame": pd.DataFrame({"id": [50, 51]}), "ended": ended}
    with pytest.raises(ab.AnabranchError) as caught:
        eval(typed, names)  # noqa: S307 - the texts above
    assert shown(str(caught.value), here) == IN_PYTHON[typed]
    assert state_of(here) == before


@pytest.mark.parametrize("typed", ON_THE_COMMAND_LINE)
def test_a_mistake_on_the_command_line(typed: str, here: Path) -> None:
    before = state_of(here)
    answer = invoke(*shlex.split(typed))
    problem, hint = ON_THE_COMMAND_LINE[typed]
    assert shown(answer.err, here) == f"error: {problem}\nhint: {hint}\n"
    assert (answer.code != 0, answer.out) == (True, "")
    assert state_of(here) == before


def test_a_filtered_frame_needs_no_care(here: Path) -> None:
    """pandas keeps the row numbers of a filtered frame as an index, which is not a column."""
    frame = pd.DataFrame({"id": [50, 51, 52], "name": ["a", "b", "c"]})
    with ab.open("lake", actor="ada").transaction() as tx:
        tx.append("shop.products", frame[frame.id > 50])
        assert tx["shop.products"].to_arrow(where="id > 50").num_rows == 2
        tx.rollback()


def test_a_folder_without_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke("status").err == (
        f"error: the folder '{tmp_path}' has no repository, and none is named\n"
        "hint: use an existing one with 'anabranch switch main --repo PATH' (or name it with --repo or ANABRANCH_REPO);"
        " create one with 'anabranch init PATH' or 'anabranch demo'\n"
    )


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = pytest.importorskip("anabranch.spark.session")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ab.MissingDependencyError) as caught:
        session.require_java({"PATH": str(tmp_path)})
    assert str(caught.value).startswith(
        "Spark needs Java, and there is no java on the PATH; install Java 17 or newer, such as Debian's"
    )


@pytest.mark.parametrize(
    ("module", "typed", "message"),
    [
        (
            "pyspark",
            "repo.diff('main', 'sale', engine='spark')",
            "PySpark is not installed; pip install 'anabranch[spark]'",
        ),
        ("polars", "repo['shop.orders'].to_polars()", "polars is not installed; run 'pip install polars', or read"),
    ],
)
def test_a_missing_extra(module: str, typed: str, message: str, here: Path) -> None:
    code = (
        "import sys, importlib.util as u\n"
        f"sys.modules[{module!r}] = None; find = u.find_spec\n"
        f"u.find_spec = lambda name, *args: None if name == {module!r} else find(name, *args)\n"
        "import anabranch as ab; repo = ab.open('lake')\n"
        f"try: {typed}\nexcept ab.AnabranchError as err: print(err)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=here, check=True)
    assert answer.stdout.startswith(message)


def test_ctrl_c(here: Path, tmp_path: Path) -> None:
    before = state_of(here)
    pipe = tmp_path / "decided.json"
    os.mkfifo(pipe)
    typed = [sys.executable, "-m", "anabranch.cli.main", "merge", "sale", "--resolutions", str(pipe)]
    # Opening the pipe waits until the command reads its other end, and keeps it waiting.
    with subprocess.Popen(typed, cwd=here, stderr=subprocess.PIPE, text=True) as running, pipe.open("w"):
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (130, "interrupted; nothing was committed\n")
    assert state_of(here) == before
