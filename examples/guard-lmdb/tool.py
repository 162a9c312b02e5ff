"""What run.sh needs besides the shell: damage at rest, and the judgement of summaries."""

import array
import fcntl
import json
import os
import random
import sqlite3
import struct
import subprocess
import sys
import time

PAGE = 4096
STRIPE = 4
# Asking a file system where a file lies: <linux/fiemap.h>.
FS_IOC_FIEMAP, FIEMAP_SYNC, FIEMAP_LAST, EXTENT = 0xC020660B, 1, 1, 56


def damage(medium, place, count, pages, seed):
    """Damages pages, of a stripe never more than one. `place` tells where in the medium a page lies,
    `None` if nowhere. Returns their numbers."""
    chance = random.Random(int(seed))
    bad = []
    for stripe in chance.sample(range(count // STRIPE), count // STRIPE):
        page = stripe * STRIPE + chance.randrange(STRIPE)
        start = place(page)
        held = os.pread(medium, PAGE, start) if start is not None else b""
        # Where nothing was ever written there may be nothing to cover.
        if not any(held):
            continue
        at = chance.randrange(PAGE - 64)
        rotten = bytes(byte ^ chance.randrange(1, 256) for byte in held[at : at + 64])
        os.pwrite(medium, rotten, start + at)
        bad.append(page)
        if len(bad) == int(pages):
            break
    return sorted(bad)


def rot(path, pages, seed):
    """Damages pages of a file at rest as rot would: no time of change is touched. Prints their numbers."""
    before = os.stat(path)
    medium = os.open(path, os.O_RDWR)
    bad = damage(medium, lambda page: page * PAGE, before.st_size // PAGE, pages, seed)
    os.close(medium)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    print(*bad)


def blocks(path):
    """Where the pages of a file lie on the device below its file system: number to offset."""
    most, head = 4096, "=QQLLLL"
    request = array.array("B", struct.pack(head, 0, 2**64 - 1, FIEMAP_SYNC, 0, most, 0))
    start = len(request)
    request.extend(bytes(most * EXTENT))
    with open(path, "rb") as file:
        fcntl.ioctl(file, FS_IOC_FIEMAP, request)
    found = struct.unpack(head, request[:start])[3]
    places = {}
    for number in range(found):
        logical, physical, length, _, _, flags, *_ = struct.unpack_from(
            "=QQQQQLLLL", request, start + number * EXTENT
        )
        if flags & ~FIEMAP_LAST:
            continue  # not written, or nowhere to be found
        for at in range(0, length, PAGE):
            places[(logical + at) // PAGE] = physical + at
    return places


def drop(group):
    """Takes everything that the processes of a control group have cached out of memory, mapped pages too."""
    first, second = group + "/memory.force_empty", group + "/memory.reclaim"
    try:
        with open(first if os.path.exists(first) else second, "w") as file:
            file.write("0" if file.name == first else "4G")
    except BlockingIOError:
        pass  # it could not get as much as that; what could go is gone


def below(holdfast, path, image, group, pages, seed):
    """Damages a file that a program under guard holds open, in the image that its file system lies in:
    no process, and no system call on the file, is part of it. The file system reads the damage once the
    pages have left memory. Waits until the guard has found and repaired all of it."""
    def status():
        told = subprocess.run([holdfast, "status", "--json", path], stdout=subprocess.PIPE)
        return json.loads(told.stdout)

    def wait(what, holds):
        for _ in range(600):
            if holds(status()):
                return
            time.sleep(0.1)
        sys.exit("   wrong: waited in vain until %s: %s" % (what, status()))

    os.sync()
    wait("every page is covered", lambda now: now["in_use"] and not uncovered(now))
    os.sync()
    places = blocks(path)
    before = status()["journal"]
    medium = os.open(image, os.O_RDWR)
    bad = damage(medium, places.get, os.stat(path).st_size // PAGE, pages, seed)
    os.close(medium)
    if len(bad) != int(pages):
        sys.exit("   wrong: only %s can be damaged" % bad)
    drop(group)
    wait("%s pages are repaired" % pages, lambda now: repaired(now["journal"]) - repaired(before) >= len(bad))
    found = {key: status()["journal"][key] - before[key] for key in before}
    if found != {"detected": len(bad), "repaired": len(bad), "lost": 0, "undecided": 0}:
        sys.exit("   wrong: %d pages were damaged, and the journal says %s" % (len(bad), found))
    print("   in use, below the file system: pages %s were damaged and given back" % " ".join(map(str, bad)))


def uncovered(now):
    return now["without_sum"] + now["without_parity"] + now["undecided"]


def repaired(journal):
    return journal["repaired"]


def summary(path, name, drilled, *wanted):
    """Judges the summary of a guard. `drilled`: how many pages somebody else damaged, or `drilled` if
    a drill did. `wanted`: figures that have to be above zero."""
    by_drill = drilled == "drilled"
    with open(path) as file:
        told = json.load(file)
    wrong = []
    files = [file for file in told["files"] if os.path.basename(file["path"]) == name]
    if len(files) != 1 or len(told["files"]) != 1:
        wrong.append("guarded: %s" % [file["path"] for file in told["files"]])
    for file in files:
        figures = {key: file[key] for key in file if isinstance(file[key], int)}
        print("   " + ", ".join("%s %d" % (key.replace("_", " "), figures[key]) for key in SHOWN))
        for key in ("passes", "repaired") + wanted:
            if not file[key] > 0:
                wrong.append("%s is %s" % (key, file[key]))
        same = [file[key] for key in ("drilled", "given_back", "corrupt", "repaired")]
        pages = file["repaired"] if by_drill else int(drilled)
        if same != [pages * by_drill, pages * by_drill, pages, pages]:
            wrong.append("drilled, given back, corrupt, repaired: %s" % same)
        for key in ("undecided", "became_undecided", "lost", "contested", "errors", "drill_kept"):
            if file[key]:
                wrong.append("%s: %s" % (key, file[key]))
        if not file["closed"]:
            wrong.append("the side file was not closed clean")
    for key in ("untold", "not_observed", "refused"):
        if told[key]:
            wrong.append("%s: %s" % (key, told[key]))
    for key in ("exit", "files_exit"):
        # 1: something was corrected, other than what a drill had damaged.
        if told[key] != (not by_drill):
            wrong.append("%s: %s" % (key, told[key]))
    if wrong:
        sys.exit("   wrong: " + "\n   wrong: ".join(wrong))


SHOWN = ("bytes_by_store", "bytes_by_write", "pages_tracked", "passes", "drilled", "repaired")


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
    parts = {"rot": rot, "below": below, "summary": summary, "named": named, "dump": dump}
    parts[sys.argv[1]](*sys.argv[2:])
