/* Maps of all kinds, alone and in transactions: what was put is found, in order where there is
 * one, and what a map does not take is refused before anything happens. */
#include "test.h"

#define ALL ((size_t)-1)

struct seen {
    size_t count;
    size_t stop_after;
    char keys[64];
};

static int note(const void *key, size_t key_len, const void *value, size_t value_len, void *argument)
{
    struct seen *seen = argument;
    (void)value;
    CHECK(value_len == 1 && key_len == 1);
    seen->keys[seen->count++] = *(const char *)key;
    return seen->count == seen->stop_after;
}

/* The keys from first on and before end, as a text. */
static const char *keys(holdfast_map map, holdfast_tx tx, const char *first, const char *end,
                        size_t limit, int back)
{
    static struct seen seen;
    size_t first_len = first ? strlen(first) : 0, end_len = end ? strlen(end) : 0;
    memset(&seen, 0, sizeof seen);
    if (back)
        OK(holdfast_map_scan_back(map, tx, first, first_len, end, end_len, limit, note, &seen));
    else
        OK(holdfast_map_scan(map, tx, first, first_len, end, end_len, limit, note, &seen));
    return seen.keys;
}

static void ranges(holdfast_map map, holdfast_tx tx)
{
    struct seen seen = {0, 2, ""};
    CHECK(strcmp(keys(map, tx, NULL, NULL, ALL, 0), "abcd") == 0);
    CHECK(strcmp(keys(map, tx, NULL, NULL, ALL, 1), "dcba") == 0);
    CHECK(strcmp(keys(map, tx, "b", NULL, ALL, 0), "bcd") == 0);
    CHECK(strcmp(keys(map, tx, "b", "d", ALL, 0), "bc") == 0);
    CHECK(strcmp(keys(map, tx, "b", "d", ALL, 1), "cb") == 0);
    CHECK(strcmp(keys(map, tx, NULL, "c", ALL, 0), "ab") == 0);
    CHECK(strcmp(keys(map, tx, "a0", "c0", ALL, 1), "cb") == 0);
    CHECK(strcmp(keys(map, tx, "b", NULL, 2, 0), "bc") == 0);
    CHECK(strcmp(keys(map, tx, NULL, NULL, 3, 1), "dcb") == 0);
    /* Ranges with nothing in them: none asked for, nothing before the least, turned round. */
    CHECK(strcmp(keys(map, tx, NULL, NULL, 0, 0), "") == 0);
    CHECK(strcmp(keys(map, tx, NULL, "", ALL, 0), "") == 0);
    CHECK(strcmp(keys(map, tx, "d", "b", ALL, 0), "") == 0);
    CHECK(strcmp(keys(map, tx, "d", "b", ALL, 1), "") == 0);
    OK(holdfast_map_scan(map, tx, NULL, 0, NULL, 0, ALL, note, &seen));
    CHECK(seen.count == 2);
}

static void no_order(holdfast_map map, holdfast_tx tx)
{
    struct seen seen = {0, 0, ""};
    CHECK(strlen(keys(map, tx, NULL, NULL, ALL, 0)) == 4);
    CHECK(strlen(keys(map, tx, NULL, NULL, 3, 0)) == 3);
    WANT(HOLDFAST_INVALID, holdfast_map_scan(map, tx, "b", 1, NULL, 0, ALL, note, &seen));
    WANT(HOLDFAST_INVALID, holdfast_map_scan(map, tx, NULL, 0, "b", 1, ALL, note, &seen));
    WANT(HOLDFAST_INVALID, holdfast_map_scan_back(map, tx, NULL, 0, NULL, 0, ALL, note, &seen));
    CHECK(seen.count == 0);
}

static void texts(holdfast_pool pool, uint32_t kind, const char *name)
{
    holdfast_map map, same;
    holdfast_tx tx;
    holdfast_map_info info;
    char byte;
    size_t len;
    uint64_t count;
    void (*look)(holdfast_map, holdfast_tx) = kind == HOLDFAST_KIND_HASHMAP ? no_order : ranges;
    OK(holdfast_map_create(pool, name, kind, HOLDFAST_CONTENT_TEXT, HOLDFAST_CONTENT_BYTES, &map));
    OK(holdfast_map_put(map, NO_TX, "b", 1, "2", 1));
    OK(holdfast_map_put(map, NO_TX, "a", 1, "1", 1));
    OK(holdfast_map_get(map, NO_TX, "a", 1, &byte, 1, &len));
    CHECK(byte == '1' && len == 1);
    WANT(HOLDFAST_ROOM, holdfast_map_get(map, NO_TX, "a", 1, NULL, 0, &len));
    CHECK(len == 1);
    WANT(HOLDFAST_NOT_FOUND, holdfast_map_get(map, NO_TX, "z", 1, &byte, 1, &len));

    OK(holdfast_tx_begin(pool, &tx));
    WANT(HOLDFAST_BUSY, holdfast_map_put(map, NO_TX, "c", 1, "3", 1));
    OK(holdfast_map_put(map, tx, "d", 1, "4", 1));
    OK(holdfast_map_put(map, tx, "c", 1, "3", 1));
    OK(holdfast_map_put(map, tx, "e", 1, "5", 1));
    WANT(HOLDFAST_NOT_FOUND, holdfast_map_remove(map, tx, "z", 1));
    OK(holdfast_map_remove(map, tx, "e", 1));
    /* What is refused at the border does not doom the transaction. */
    WANT(HOLDFAST_INVALID, holdfast_map_put(map, tx, "\xff", 1, "1", 1));
    look(map, tx);
    OK(holdfast_tx_commit(tx));

    OK(holdfast_map_open(pool, name, &same));
    OK(holdfast_map_count(same, NO_TX, &count));
    CHECK(count == 4);
    look(same, NO_TX);
    OK(holdfast_map_describe(same, &info, sizeof info));
    CHECK(info.kind == kind && info.keys == HOLDFAST_CONTENT_TEXT);
    CHECK(info.values == HOLDFAST_CONTENT_BYTES && info.reserved == 0);
    OK(holdfast_map_close(same));
    /* `map` is left to the pool's close. */
}

struct numbers {
    int64_t last;
    uint64_t sum;
    size_t count;
};

static int rising(const void *key, size_t key_len, const void *value, size_t value_len,
                  void *argument)
{
    struct numbers *seen = argument;
    int64_t number;
    uint64_t told;
    CHECK(key_len == sizeof number && value_len == sizeof told);
    memcpy(&number, key, sizeof number);
    memcpy(&told, value, sizeof told);
    CHECK(seen->count == 0 || seen->last < number);
    seen->last = number;
    seen->sum += told;
    seen->count++;
    return 0;
}

/* Numbers are handed over as the machine has them and come in their order; other sizes are
 * refused. */
static void numbers(holdfast_pool pool, uint32_t kind, const char *name)
{
    holdfast_map map;
    holdfast_tx tx;
    struct numbers seen = {0, 0, 0};
    int64_t key, first = -5, end = 5;
    uint64_t value;
    size_t len;
    OK(holdfast_map_create(pool, name, kind, HOLDFAST_CONTENT_I64, HOLDFAST_CONTENT_U64, &map));
    OK(holdfast_tx_begin(pool, &tx));
    for (key = 100; key >= -100; key--) {
        value = (uint64_t)(key + 1000);
        OK(holdfast_map_put(map, tx, &key, sizeof key, &value, sizeof value));
    }
    key = 7;
    WANT(HOLDFAST_INVALID, holdfast_map_put(map, tx, &key, 7, &value, 8));
    CHECK(strstr(holdfast_message(), "8 bytes") && strstr(holdfast_message(), "the key"));
    WANT(HOLDFAST_INVALID, holdfast_map_put(map, tx, &key, 8, &value, 4));
    CHECK(strstr(holdfast_message(), "8 bytes") && strstr(holdfast_message(), "the value"));
    WANT(HOLDFAST_INVALID, holdfast_map_put(map, tx, &key, 8, "", 0));
    WANT(HOLDFAST_INVALID, holdfast_map_get(map, tx, "7", 1, &value, 8, &len));
    WANT(HOLDFAST_INVALID, holdfast_map_remove(map, tx, "7", 1));
    OK(holdfast_tx_commit(tx));
    OK(holdfast_map_get(map, NO_TX, &key, sizeof key, &value, sizeof value, &len));
    CHECK(value == 1007 && len == sizeof value);
    if (kind == HOLDFAST_KIND_HASHMAP)
        return;
    OK(holdfast_map_scan(map, NO_TX, NULL, 0, NULL, 0, ALL, rising, &seen));
    CHECK(seen.count == 201 && seen.last == 100);
    memset(&seen, 0, sizeof seen);
    OK(holdfast_map_scan(map, NO_TX, &first, 8, &end, 8, ALL, rising, &seen));
    CHECK(seen.count == 10 && seen.last == 4 && seen.sum == 9995);
    WANT(HOLDFAST_INVALID, holdfast_map_scan(map, NO_TX, &first, 4, NULL, 0, ALL, rising, &seen));
    WANT(HOLDFAST_INVALID, holdfast_map_scan(map, NO_TX, NULL, 0, &end, 9, ALL, rising, &seen));
}

static void kinds(holdfast_pool pool)
{
    static const char *const names[] = {"hashmap", "btree", "rbtree", "ctree", "skiplist", "rtree"};
    uint32_t kind, found;
    char name[32];
    for (kind = 0; kind < 6; kind++) {
        CHECK(strcmp(holdfast_kind_name(kind), names[kind]) == 0);
        OK(holdfast_kind_from_name(names[kind], &found));
        CHECK(found == kind);
        texts(pool, kind, names[kind]);
        snprintf(name, sizeof name, "%s of numbers", names[kind]);
        numbers(pool, kind, name);
    }
    CHECK(holdfast_kind_name(6) == NULL);
    WANT(HOLDFAST_INVALID, holdfast_kind_from_name("heap", &found));
}

/* Whatever a map was created as, it is nothing else. */
static void as_another(holdfast_pool pool)
{
    holdfast_map map;
    uint32_t made, wanted;
    for (made = 0; made < 6; made++) {
        for (wanted = 0; wanted < 6; wanted++) {
            holdfast_code code = made == wanted ? HOLDFAST_OK : HOLDFAST_WRONG_TYPE;
            WANT(code, holdfast_map_create(pool, holdfast_kind_name(made), wanted,
                                           HOLDFAST_CONTENT_TEXT, HOLDFAST_CONTENT_BYTES, &map));
            CHECK((map.id == 0) == (code != HOLDFAST_OK));
        }
        for (wanted = 0; wanted < 4; wanted++) {
            holdfast_code code = wanted == HOLDFAST_CONTENT_TEXT ? HOLDFAST_OK : HOLDFAST_WRONG_TYPE;
            WANT(code, holdfast_map_create(pool, holdfast_kind_name(made), made, wanted,
                                           HOLDFAST_CONTENT_BYTES, &map));
            code = wanted == HOLDFAST_CONTENT_BYTES ? HOLDFAST_OK : HOLDFAST_WRONG_TYPE;
            WANT(code, holdfast_map_create(pool, holdfast_kind_name(made), made,
                                           HOLDFAST_CONTENT_TEXT, wanted, &map));
        }
    }
    WANT(HOLDFAST_WRONG_TYPE, holdfast_map_create(pool, "btree", 0, 1, 0, &map));
    CHECK(strstr(holdfast_message(), "btree") && strstr(holdfast_message(), "hashmap"));
    WANT(HOLDFAST_INVALID, holdfast_map_create(pool, "new", 6, 0, 0, &map));
    WANT(HOLDFAST_INVALID, holdfast_map_create(pool, "new", 0, 4, 0, &map));
    WANT(HOLDFAST_INVALID, holdfast_map_create(pool, "new", 0, 0, 4, &map));
    WANT(HOLDFAST_NOT_FOUND, holdfast_map_open(pool, "new", &map));
    WANT(HOLDFAST_INVALID, holdfast_map_create(pool, "", 0, 0, 0, &map));
}

/* A key has a longest length, which is told before anything is done. */
static void long_keys(holdfast_pool pool)
{
    static char key[(1 << 16) + 1];
    holdfast_map map;
    holdfast_tx tx;
    size_t len;
    uint64_t count;
    OK(holdfast_map_create(pool, "long", HOLDFAST_KIND_BTREE, 0, 0, &map));
    OK(holdfast_tx_begin(pool, &tx));
    OK(holdfast_map_put(map, tx, key, sizeof key - 1, "1", 1));
    WANT(HOLDFAST_INVALID, holdfast_map_put(map, tx, key, sizeof key, "1", 1));
    CHECK(strstr(holdfast_message(), "65537 bytes") != NULL);
    WANT(HOLDFAST_INVALID, holdfast_map_get(map, tx, key, sizeof key, NULL, 0, &len));
    WANT(HOLDFAST_INVALID, holdfast_map_remove(map, tx, key, sizeof key));
    OK(holdfast_tx_commit(tx));
    OK(holdfast_map_count(map, NO_TX, &count));
    CHECK(count == 1);
}

/* A value there is no room for is an error of the transaction, of which nothing happens. */
static void long_values(holdfast_pool pool)
{
    static char value[32 << 20];
    holdfast_map map;
    holdfast_tx tx;
    OK(holdfast_map_create(pool, "long", HOLDFAST_KIND_BTREE, 0, 0, &map));
    WANT(HOLDFAST_NO_SPACE, holdfast_map_put(map, NO_TX, "b", 1, value, sizeof value));
    OK(holdfast_tx_begin(pool, &tx));
    OK(holdfast_map_put(map, tx, "a", 1, "1", 1));
    WANT(HOLDFAST_NO_SPACE, holdfast_map_put(map, tx, "b", 1, value, sizeof value));
    WANT(HOLDFAST_NO_SPACE, holdfast_tx_commit(tx));
    WANT(HOLDFAST_NOT_FOUND, holdfast_map_remove(map, NO_TX, "a", 1));
}

/* A map that was dropped is not there, and handles of it find nothing. */
static void dropped(holdfast_pool pool)
{
    holdfast_map map, again;
    holdfast_info before, after;
    uint32_t kind;
    size_t len;
    int i;
    for (kind = 0; kind < 6; kind++) {
        OK(holdfast_pool_info(pool, &before, sizeof before));
        OK(holdfast_map_create(pool, "short-lived", kind, 0, 0, &map));
        for (i = 0; i < 300; i++)
            OK(holdfast_map_put(map, NO_TX, &i, sizeof i, "a value of some length", 22));
        OK(holdfast_map_drop(pool, "short-lived"));
        OK(holdfast_pool_info(pool, &after, sizeof after));
        CHECK(before.objects == after.objects);
        WANT(HOLDFAST_NOT_FOUND, holdfast_map_drop(pool, "short-lived"));
        WANT(HOLDFAST_NOT_FOUND, holdfast_map_open(pool, "short-lived", &again));
        WANT(HOLDFAST_DANGLING, holdfast_map_get(map, NO_TX, "a", 1, NULL, 0, &len));
        WANT(HOLDFAST_DANGLING, holdfast_map_put(map, NO_TX, "a", 1, "b", 1));
    }
}

int main(int count, char **arguments)
{
    holdfast_pool pool;
    holdfast_map map;
    holdfast_report report;
    CHECK(count == 2);
    pool = small_pool(arguments[1]);
    kinds(pool);
    as_another(pool);
    long_keys(pool);
    long_values(pool);
    dropped(pool);
    OK(holdfast_check(pool, NULL, NULL, &report, sizeof report));
    CHECK(report.found == 0);
    OK(holdfast_map_open(pool, "btree", &map));
    OK(holdfast_pool_close(pool));
    WANT(HOLDFAST_HANDLE, holdfast_map_put(map, NO_TX, "a", 1, "1", 1));
    OK(holdfast_map_close(map));
    return 0;
}
