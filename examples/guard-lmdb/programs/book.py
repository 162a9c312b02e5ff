"""A program on SQLite that reads its database through a mapping and writes it by system calls. What it
leaves follows from its arguments alone. Ends with 1 if it ever reads what it did not write."""

import os
import random
import sqlite3
import sys
import time

path, transactions, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
chance = random.Random(11)
book = sqlite3.connect(path)
mapped = book.execute("pragma mmap_size = 268435456").fetchone()
if not mapped or mapped[0] == 0:
    sys.exit("book: this SQLite maps nothing")
book.execute("create table if not exists note (id integer primary key, text text)")
book.execute("create index if not exists by_text on note (substr(text, 1, 12))")
shadow = {}
for number in range(1, transactions + 1):
    with book:
        for _ in range(12):
            key = chance.randrange(4000)
            if chance.random() < 0.2:
                book.execute("delete from note where id = ?", (key,))
                shadow.pop(key, None)
                continue
            text = "%016x" % chance.getrandbits(64) * chance.randrange(4, 40)
            book.execute("insert or replace into note values (?, ?)", (key, text))
            shadow[key] = text
    if number % 25 == 0 and dict(book.execute("select id, text from note")) != shadow:
        sys.exit("book: transaction %d: what is read is not what was written" % number)
    if number == transactions // 2 and "PAUSE" in os.environ:
        # Half way; the database stays open.
        open(os.environ["PAUSE"] + "/here", "w").close()
        while not os.path.exists(os.environ["PAUSE"] + "/go"):
            time.sleep(0.05)
        if dict(book.execute("select id, text from note")) != shadow:
            sys.exit("book: after the pause: what is read is not what was written")
    time.sleep(pause)
answer = book.execute("pragma integrity_check").fetchall()
if answer != [("ok",)] or dict(book.execute("select id, text from note")) != shadow:
    sys.exit("book: at the end: %s" % answer)
book.close()
