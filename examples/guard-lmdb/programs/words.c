/* A small program on LMDB that knows nothing of any guard. It writes a fixed series of transactions
 * into a database and reads it back all the time, so what it leaves does not depend on how fast it
 * runs. Ends with 1 if it ever reads what it did not write. */
#include <fcntl.h>
#include <lmdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEYS = 3000, PUTS = 24, LONGEST = 700 };

/* What the program wrote last under each key: the number of the transaction, 0 if nothing. */
static uint32_t newest[KEYS];

static void need(int code, const char *what) {
    if (code != 0) {
        fprintf(stderr, "words: %s: %s\n", what, mdb_strerror(code));
        exit(1);
    }
}

static uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static size_t value_of(uint32_t key, uint32_t number, unsigned char *into) {
    uint64_t x = (uint64_t)number << 32 | key;
    size_t len = 60 + mixed(x) % (LONGEST - 60);
    for (size_t at = 0; at < len; at++) {
        if (at % 8 == 0) x = mixed(x);
        into[at] = (unsigned char)(x >> at % 8 * 8);
    }
    return len;
}

static void look(MDB_env *env) {
    MDB_txn *txn;
    MDB_dbi dbi;
    need(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), "begin to read");
    need(mdb_dbi_open(txn, NULL, 0, &dbi), "open");
    for (uint32_t key = 0; key < KEYS; key++) {
        unsigned char expected[LONGEST];
        MDB_val name = {sizeof key, &key}, value;
        int found = mdb_get(txn, dbi, &name, &value);
        if (newest[key] == 0) {
            if (found == MDB_NOTFOUND) continue;
        } else if (found == 0) {
            size_t len = value_of(key, newest[key], expected);
            if (value.mv_size == len && memcmp(value.mv_data, expected, len) == 0) continue;
        }
        fprintf(stderr, "words: key %u is not what was written last\n", key);
        exit(1);
    }
    mdb_txn_abort(txn);
}

/* Half way, if PAUSE names a folder: makes `here` in it and waits for `go`. The database stays open. */
static void rest(void) {
    const char *folder = getenv("PAUSE");
    char here[4096], go[4096];
    if (folder == NULL) return;
    snprintf(here, sizeof here, "%s/here", folder);
    snprintf(go, sizeof go, "%s/go", folder);
    int made = open(here, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (made < 0) {
        perror(here);
        exit(1);
    }
    close(made);
    while (access(go, F_OK) != 0) usleep(50000);
}

int main(int count, char **words) {
    if (count != 5) {
        fprintf(stderr, "usage: words FOLDER plain|writemap TRANSACTIONS PAUSE_MICROSECONDS\n");
        return 2;
    }
    unsigned flags = strcmp(words[2], "writemap") == 0 ? MDB_WRITEMAP : 0;
    uint32_t transactions = (uint32_t)strtoul(words[3], NULL, 10);
    useconds_t pause = (useconds_t)strtoul(words[4], NULL, 10);
    MDB_env *env;
    need(mdb_env_create(&env), "create");
    need(mdb_env_set_mapsize(env, 64u << 20), "mapsize");
    need(mdb_env_open(env, words[1], flags, 0644), "open");
    for (uint32_t number = 1; number <= transactions; number++) {
        MDB_txn *txn;
        MDB_dbi dbi;
        need(mdb_txn_begin(env, NULL, 0, &txn), "begin");
        need(mdb_dbi_open(txn, NULL, MDB_CREATE, &dbi), "open");
        for (uint32_t put = 0; put < PUTS; put++) {
            uint64_t x = mixed((uint64_t)number * PUTS + put);
            uint32_t key = (uint32_t)(x % KEYS);
            MDB_val name = {sizeof key, &key};
            if (x >> 40 & 1 && newest[key] != 0) {
                need(mdb_del(txn, dbi, &name, NULL), "delete");
                newest[key] = 0;
                continue;
            }
            unsigned char bytes[LONGEST];
            MDB_val value = {value_of(key, number, bytes), bytes};
            need(mdb_put(txn, dbi, &name, &value, 0), "put");
            newest[key] = number;
        }
        need(mdb_txn_commit(txn), "commit");
        if (number % 16 == 0) look(env);
        if (number == transactions / 2) {
            rest();
            look(env);
        }
        usleep(pause);
    }
    look(env);
    mdb_env_close(env);
    return 0;
}
