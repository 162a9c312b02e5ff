#!/usr/bin/env bash
# Real programs under guard: their files are damaged while in use and at rest, and have to come back
# byte by byte. Ends with 0 only if every check holds, and if the first of them does not hold once
# the tracking of writes is switched off.
#
#   run.sh               everything
#   run.sh NAME...       of lmdb, writemap, sqlite, fio, java: these only
#   run.sh --below       only the damage that is done below the file system
#   run.sh --untracked   only the counter-proof
#
# HOLDFAST_BIN names a folder with a built `holdfast` and its library; without it both are built.
# HOLDFAST_PROFILE=dev builds faster, and what it builds is slower. WORK names the folder to work in,
# which is kept; without it one is made and removed. SEED changes what is damaged.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
profile=${HOLDFAST_PROFILE:-release}
seed=${SEED:-$(date +%s)}
# Pages that a drill damages, how often, and pages damaged at rest.
drill=8 period=250ms rotten=12
started=$SECONDS

say() { printf '%s\n' "$*"; }
fail() {
    say "run.sh: $*" >&2
    exit 1
}

# What the programs need: a command or a header, and the packages that have it.
needed=(
    'gcc:gcc libc6-dev' 'python3:python3' 'mdb_dump:lmdb-utils' 'fio:fio'
    'javac:default-jdk-headless' '/usr/include/lmdb.h:liblmdb-dev'
)

is_here() {
    case $1 in
        /*) [ -e "$1" ] ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

install() {
    local need missing=()
    for need in "${needed[@]}"; do
        # shellcheck disable=SC2206 # several packages
        is_here "${need%%:*}" || missing+=(${need#*:})
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        fail "missing: ${missing[*]} (names of Debian's packages); install them, then run this again"
    fi
    say "installing ${missing[*]}"
    apt-get update -qq >/dev/null || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null ||
        fail "${missing[*]} could not be installed; install them, then run this again"
}

build() {
    if [ -n "${HOLDFAST_BIN:-}" ]; then
        bin=$HOLDFAST_BIN
    else
        command -v cargo >/dev/null || fail "no cargo here: see https://rustup.rs"
        (cd "$root" && cargo build --quiet --profile "$profile" -p holdfast-cli -p holdfast-preload)
        bin=$target/$([ "$profile" = dev ] && echo debug || echo "$profile")
    fi
    [ -x "$bin/holdfast" ] || fail "$bin/holdfast is not there"
    gcc -O2 -Wall -Werror -o "$work/words" "$here/programs/words.c" -llmdb
    javac -d "$work" "$here/programs/Notes.java"
}

# Runs a program on the files in a folder. The work takes some seconds, and what it leaves does not
# depend on how many.
work_on() {
    local name=$1 folder=$2
    shift 2
    case $name in
        lmdb) "$@" "$work/words" "$folder" plain 500 6000 ;;
        writemap) "$@" "$work/words" "$folder" writemap 500 6000 ;;
        sqlite) "$@" python3 "$here/programs/book.py" "$folder/book.db" 300 0.01 ;;
        fio) (cd "$folder" && "$@" fio "${fio[@]}" --rw=randwrite --rate=,6m --fsync=256) ;;
        java) "$@" java -cp "$work" Notes "$folder/notes.bin" 40000 600 ;;
    esac
}
fio=(--name=pages --filename=pages.bin --size=24m --bs=4k --ioengine=mmap --randseed=5
    --verify=crc32c --verify_fatal=1 --output-format=terse --output=fio.out)

file_of() {
    case $1 in
        lmdb | writemap) echo data.mdb ;;
        sqlite) echo book.db ;;
        fio) echo pages.bin ;;
        java) echo notes.bin ;;
    esac
}

# What a program left, told by somebody who knows its format.
content() {
    case $1 in
        lmdb | writemap) mdb_dump "$2" ;;
        sqlite) python3 "$here/tool.py" dump "$2/book.db" ;;
        fio) (cd "$2" && fio "${fio[@]}" --rw=randwrite --verify_only >/dev/null && echo verified) ;;
        java) sha256sum <"$2/notes.bin" ;;
    esac
}

# Figures of the summary that have to be above zero: how the program writes, and whether it maps the
# file to store to it.
figures() {
    case $1 in
        lmdb | sqlite) echo bytes_by_write ;;
        writemap | fio | java) echo bytes_by_store pages_tracked ;;
    esac
}

holdfast() { "$bin/holdfast" "$@"; }

# A command has to end with this code.
expect() {
    local code=$1 found=0
    shift
    "$@" || found=$?
    [ "$found" = "$code" ] || { say "   wrong: code $found instead of $code: $*"; return 1; }
}

in_use() {
    local name=$1 free=$work/$1.free folder=$work/$1.guarded file
    shift
    file=$(file_of "$name")
    mkdir "$free" "$folder"
    work_on "$name" "$free" || { say "   wrong: it fails without a guard"; return 1; }
    content "$name" "$free" >"$work/$name.expected" || return 1
    work_on "$name" "$folder" "$bin/holdfast" guard --json --summary "$work/$name.json" \
        --match "$file" --trust fio --period "$period" --drill "$drill" --drill-seed "$seed" "$@" -- || {
        say "   wrong: it fails under guard, code $?"
        return 1
    }
    content "$name" "$folder" >"$work/$name.found" || { say "   wrong: unreadable"; return 1; }
    cmp "$work/$name.expected" "$work/$name.found" || { say "   wrong: content"; return 1; }
    # shellcheck disable=SC2046 # several figures
    python3 "$here/tool.py" summary "$work/$name.json" "$file" drilled $(figures "$name")
}

# What damage below the file system needs: a loop device, and a way to take a program's pages out of
# memory. Prints the control group to make; or says why it cannot be done.
can_go_below() {
    local tool
    [ "$(id -u)" = 0 ] || { say "   skipped: needs root, for a loop device"; return 1; }
    for tool in losetup mkfs.ext4; do
        command -v "$tool" >/dev/null || { say "   skipped: no $tool here"; return 1; }
    done
    losetup --find >/dev/null 2>&1 || { say "   skipped: no loop device here"; return 1; }
    group=/sys/fs/cgroup/memory/holdfast-example-$$
    [ -d /sys/fs/cgroup/memory ] || group=/sys/fs/cgroup/holdfast-example-$$
    mkdir "$group" 2>/dev/null || { say "   skipped: no control group can be made"; return 1; }
    [ -e "$group/memory.force_empty" ] || [ -e "$group/memory.reclaim" ] || {
        rmdir "$group"
        say "   skipped: no control group can be emptied (needs control of memory)"
        return 1
    }
}

# Mounts an image, with the folder of a program in it.
mounted() {
    mount -o loop "$work/below.img" "$work/below"
}

# The same program and guard, and somebody who damages the image that the file system lies in.
below() {
    local name=$1 file folder=$work/below/$1 pause=$work/$1.pause running code=0
    file=$(file_of "$name")
    mkdir "$work/$name.alone" "$folder" "$pause"
    work_on "$name" "$work/$name.alone" || return 1
    content "$name" "$work/$name.alone" >"$work/$name.expected" || return 1
    (
        echo "$BASHPID" >"$group/cgroup.procs"
        export PAUSE=$pause
        work_on "$name" "$folder" "$bin/holdfast" guard --json --summary "$work/$name.below.json" \
            --match "$file" --period "$period" --
    ) &
    running=$!
    while [ ! -e "$pause/here" ] && kill -0 "$running" 2>/dev/null; do sleep 0.1; done
    python3 "$here/tool.py" below "$bin/holdfast" "$folder/$file" "$work/below.img" "$group" \
        "$rotten" "$seed" || code=$?
    : >"$pause/go"
    [ "$code" = 0 ] || { wait "$running" || true; return 1; }
    # It was corrected, and nothing is left: what no drill has damaged is told by the code.
    expect 1 wait "$running" || return 1
    content "$name" "$folder" >"$work/$name.found" || { say "   wrong: unreadable"; return 1; }
    cmp "$work/$name.expected" "$work/$name.found" || { say "   wrong: content"; return 1; }
    # shellcheck disable=SC2046 # several figures
    python3 "$here/tool.py" summary "$work/$name.below.json" "$file" "$rotten" $(figures "$name") ||
        return 1
    # What was given back has to be on the disk, too.
    umount "$work/below" && mounted || return 1
    expect 0 holdfast --quiet verify "$folder/$file" || return 1
    content "$name" "$folder" >"$work/$name.found" || { say "   wrong: unreadable"; return 1; }
    cmp "$work/$name.expected" "$work/$name.found" || { say "   wrong: content on disk"; return 1; }
}

all_below() {
    local name
    say "damage below the file system"
    can_go_below || return 0
    truncate -s 512m "$work/below.img"
    mkfs.ext4 -q "$work/below.img"
    mkdir "$work/below"
    mounted || fail "the image cannot be mounted"
    trap 'clean_below; clean' EXIT
    for name in "$@"; do
        [ "$name" != fio ] || continue # it never rests
        say "$name, below"
        if below "$name"; then say "   ok"; else failed+=("$name below"); fi
    done
}

clean_below() {
    umount "$work/below" 2>/dev/null || true
    rmdir "$group" 2>/dev/null || true
}

clean() {
    [ -n "${WORK:-}" ] || rm -rf "$work"
}

at_rest() {
    local name=$1 file=$work/$1.guarded pages
    file=$file/$(file_of "$name")
    cp "$file" "$work/copy" || return 1
    expect 0 holdfast --quiet verify "$file" || return 1
    pages=$(python3 "$here/tool.py" rot "$file" "$rotten" "$seed") || return 1
    ! cmp -s "$file" "$work/copy" || { say "   wrong: nothing was damaged"; return 1; }
    expect 4 holdfast --json verify "$file" >"$work/verify.json" || return 1
    # shellcheck disable=SC2086 # several pages
    python3 "$here/tool.py" named "$work/verify.json" $pages || return 1
    expect 1 holdfast --quiet repair "$file" || return 1
    cmp "$file" "$work/copy" || { say "   wrong: not byte-identical"; return 1; }
    expect 0 holdfast --quiet verify "$file" || return 1
    content "$name" "$work/$name.guarded" >"$work/$name.found" || return 1
    cmp "$work/$name.expected" "$work/$name.found" || return 1
    say "   at rest: pages $pages were damaged, named and given back"
}

# Writes that nobody tells of look like damage, so a guard that misses them must not pass for one.
untracked() {
    local library=$target/untracked/debug/libholdfast_preload.so
    if [ -z "${HOLDFAST_UNTRACKED:-}" ]; then
        (cd "$root" && cargo build --quiet -p holdfast-preload --features untracked \
            --target-dir "$target/untracked")
    else
        library=$HOLDFAST_UNTRACKED
    fi
    [ -f "$library" ] || fail "$library is not there"
    rm -rf "$work"/lmdb.*
    export HOLDFAST_GUARD_UNTRACKED=1
    if in_use lmdb --preload "$library" && at_rest lmdb; then
        return 1
    fi
    unset HOLDFAST_GUARD_UNTRACKED
    # The same library, with the tracking on, is no worse than the other.
    rm -rf "$work"/lmdb.*
    in_use lmdb --preload "$library"
}

main() {
    local name names=(lmdb writemap sqlite fio java) deep=(lmdb writemap sqlite java) failed=() proof=yes
    case ${1:-} in
        --untracked) names=() deep=() ;;
        --below) names=() proof=no ;;
        -*) fail "usage: run.sh [--untracked | --below | NAME...]" ;;
        ?*) names=("$@") deep=("$@") proof=no ;;
    esac
    for name in ${names[@]+"${names[@]}"}; do
        [ -n "$(file_of "$name")" ] || fail "$name: no such program; lmdb, writemap, sqlite, fio, java"
    done
    install
    if [ -n "${WORK:-}" ]; then
        work=$WORK
        mkdir "$work" || fail "$work has to be a folder that is not there yet"
    else
        work=$(mktemp -d)
    fi
    trap clean EXIT
    build
    say "built in $((SECONDS - started)) s; seed $seed"
    started=$SECONDS
    for name in ${names[@]+"${names[@]}"}; do
        say "$name"
        if in_use "$name" && at_rest "$name"; then say "   ok"; else failed+=("$name"); fi
    done
    [ ${#deep[@]} = 0 ] || all_below "${deep[@]}"
    if [ "$proof" = yes ]; then
        say "lmdb, with the tracking of writes switched off: has to fail"
        if untracked; then say "   ok: it failed"; else failed+=(untracked); fi
    fi
    say "$((SECONDS - started)) s"
    [ ${#failed[@]} = 0 ] || fail "failed: ${failed[*]} (repeat with SEED=$seed)"
}

main "$@"
