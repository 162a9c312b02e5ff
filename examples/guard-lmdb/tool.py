"""What run.sh needs besides the shell: damage at rest, and the judgement of summaries."""

import json
import os
import random
import sqlite3
import sys

PAGE = 4096
STRIPE = 4


def rot(path, pages, seed):
    """Damages pages as rot would: of a stripe never more than one, and no time of change is touched.
    Prints their numbers."""
    before = os.stat(path)
    chance = random.Random(int(seed))
    with open(path, "r+b") as file:
        count = before.st_size // PAGE
        bad = []
        for stripe in chance.sample(range(count // STRIPE), count // STRIPE):
            page = stripe * STRIPE + chance.randrange(STRIPE)
            file.seek(page * PAGE)
            held = file.read(PAGE)
            # Where nothing was ever written there may be nothing to cover.
            if not any(held):
                continue
            at = chance.randrange(PAGE - 64)
            file.seek(page * PAGE + at)
            file.write(bytes(byte ^ chance.randrange(1, 256) for byte in held[at : at + 64]))
            bad.append(page)
            if len(bad) == int(pages):
                break
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    print(" ".join(str(page) for page in sorted(bad)))


def summary(path, name, *wanted):
    """Judges the summary of a guard. `wanted`: figures that have to be above zero."""
    with open(path) as file:
        told = json.load(file)
    wrong = []
    files = [file for file in told["files"] if os.path.basename(file["path"]) == name]
    if len(files) != 1 or len(told["files"]) != 1:
        wrong.append("guarded: %s" % [file["path"] for file in told["files"]])
    for file in files:
        figures = {key: file[key] for key in file if isinstance(file[key], int)}
        print("   " + ", ".join("%s %d" % (key.replace("_", " "), figures[key]) for key in SHOWN))
        for key in ("passes", "drilled") + wanted:
            if not file[key] > 0:
                wrong.append("%s is %s" % (key, file[key]))
        same = [file[key] for key in ("drilled", "given_back", "corrupt", "repaired")]
        if len(set(same)) != 1:
            wrong.append("drilled, given back, corrupt, repaired: %s" % same)
        for key in ("undecided", "became_undecided", "lost", "contested", "errors", "drill_kept"):
            if file[key]:
                wrong.append("%s: %s" % (key, file[key]))
        if not file["closed"]:
            wrong.append("the side file was not closed clean")
    for key in ("untold", "not_observed", "refused", "exit", "files_exit"):
        if told[key]:
            wrong.append("%s: %s" % (key, told[key]))
    if wrong:
        sys.exit("   wrong: " + "\n   wrong: ".join(wrong))


SHOWN = ("bytes_by_store", "bytes_by_write", "pages_tracked", "passes", "drilled", "given_back")


def named(path, *pages):
    """Whether `verify --json` names exactly these pages as corrupt, and none as undecided."""
    with open(path) as file:
        told = json.load(file)
    if told["corrupt_pages"] != [int(page) for page in pages] or told["undecided"]:
        sys.exit("   wrong: verify names %s" % {key: told[key] for key in told if told[key]})


def dump(path):
    """The content of a SQLite database, as SQL."""
    for line in sqlite3.connect("file:%s?mode=ro" % path, uri=True).iterdump():
        print(line)


if __name__ == "__main__":
    {"rot": rot, "summary": summary, "named": named, "dump": dump}[sys.argv[1]](*sys.argv[2:])
