/* Entries are visited while the map changes: cursors go on, functions that are called for entries
 * may not change what they are called for, and whatever is gone is a code. */
#include "test.h"
#include <pthread.h>

#define ALL ((size_t)-1)

struct step {
    uint64_t key;
    char value[16];
    size_t key_len, value_len;
};

static holdfast_code next(holdfast_cursor cursor, holdfast_tx tx, struct step *step)
{
    return holdfast_cursor_next(cursor, tx, &step->key, sizeof step->key, &step->key_len,
                                step->value, sizeof step->value, &step->value_len);
}

static void put(holdfast_map map, holdfast_tx tx, uint64_t key)
{
    OK(holdfast_map_put(map, tx, &key, sizeof key, "value", 6));
}

/* What is there all the time is met once, while other keys come and go, and buckets split. */
static void across_changes(holdfast_pool pool, uint32_t kind)
{
    static char met[3000];
    holdfast_map map;
    holdfast_cursor cursor;
    struct step step;
    uint64_t key, last = 0;
    int steps = 0;
    holdfast_code code;
    memset(met, 0, sizeof met);
    OK(holdfast_map_create(pool, holdfast_kind_name(kind), kind, HOLDFAST_CONTENT_U64,
                           HOLDFAST_CONTENT_BYTES, &map));
    for (key = 0; key < 600; key += 2)
        put(map, NO_TX, key);
    OK(holdfast_cursor_open(map, &cursor));
    while ((code = next(cursor, NO_TX, &step)) == HOLDFAST_OK) {
        CHECK(step.key_len == 8 && step.value_len == 6 && step.key < sizeof met);
        CHECK(!met[step.key]);
        CHECK(kind == HOLDFAST_KIND_HASHMAP || steps == 0 || step.key > last);
        met[step.key] = 1;
        last = step.key;
        steps++;
        /* An odd key comes, one that came earlier goes, and often the one the cursor is at. */
        if (steps <= 1000)
            put(map, NO_TX, (uint64_t)(steps * 7 % 3000 | 1));
        key = (uint64_t)(steps * 7 % 1500 | 1);
        code = holdfast_map_remove(map, NO_TX, &key, sizeof key);
        CHECK(code == HOLDFAST_OK || code == HOLDFAST_NOT_FOUND);
        if (step.key % 2 == 1)
            (void)holdfast_map_remove(map, NO_TX, &step.key, sizeof step.key);
    }
    CHECK(code == HOLDFAST_NOT_FOUND && next(cursor, NO_TX, &step) == HOLDFAST_NOT_FOUND);
    for (key = 0; key < 600; key += 2)
        CHECK(met[key]);
    OK(holdfast_cursor_rewind(cursor));
    OK(next(cursor, NO_TX, &step));

    /* The map is dropped under it, and made anew: it is another one. */
    OK(holdfast_map_drop(pool, holdfast_kind_name(kind)));
    WANT(HOLDFAST_DANGLING, next(cursor, NO_TX, &step));
    OK(holdfast_cursor_rewind(cursor));
    WANT(HOLDFAST_DANGLING, next(cursor, NO_TX, &step));
    OK(holdfast_map_create(pool, holdfast_kind_name(kind), kind, HOLDFAST_CONTENT_U64,
                           HOLDFAST_CONTENT_BYTES, &map));
    put(map, NO_TX, 1);
    WANT(HOLDFAST_DANGLING, next(cursor, NO_TX, &step));
    OK(holdfast_cursor_close(cursor));
    WANT(HOLDFAST_HANDLE, holdfast_cursor_close(cursor));
    WANT(HOLDFAST_HANDLE, holdfast_cursor_rewind(cursor));
    WANT(HOLDFAST_HANDLE, next(cursor, NO_TX, &step));
}

static holdfast_cursor held;

static void *close_held(void *argument)
{
    (void)argument;
    OK(holdfast_cursor_close(held));
    return NULL;
}

static void in_transactions(holdfast_pool pool)
{
    holdfast_map map;
    holdfast_tx tx;
    struct step step;
    char small[3];
    size_t key_len, value_len;
    pthread_t thread;
    OK(holdfast_map_create(pool, "t", HOLDFAST_KIND_RTREE, HOLDFAST_CONTENT_U64, 0, &map));
    put(map, NO_TX, 1);
    put(map, NO_TX, 2);
    OK(holdfast_cursor_open(map, &held));
    OK(holdfast_tx_begin(pool, &tx));
    WANT(HOLDFAST_BUSY, next(held, NO_TX, &step));
    OK(next(held, tx, &step));
    CHECK(step.key == 1);
    put(map, tx, 3);
    /* Too little room: both lengths are told and it stays where it is. */
    WANT(HOLDFAST_ROOM, holdfast_cursor_next(held, tx, &step.key, 8, &key_len, small, sizeof small,
                                             &value_len));
    CHECK(key_len == 8 && value_len == 6);
    WANT(HOLDFAST_ROOM, holdfast_cursor_next(held, tx, NULL, 0, &key_len, small, 0, &value_len));
    OK(next(held, tx, &step));
    OK(next(held, tx, &step));
    CHECK(step.key == 3);
    OK(holdfast_tx_abort(tx));
    WANT(HOLDFAST_HANDLE, next(held, tx, &step));
    WANT(HOLDFAST_NOT_FOUND, next(held, NO_TX, &step));
    OK(holdfast_cursor_rewind(held));
    /* The handle it was made by is not needed any more. */
    OK(holdfast_map_close(map));
    OK(next(held, NO_TX, &step));
    CHECK(pthread_create(&thread, NULL, close_held, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    WANT(HOLDFAST_HANDLE, next(held, NO_TX, &step));
}

struct visit {
    holdfast_pool pool;
    holdfast_map map;
    holdfast_tx tx;
    size_t count;
    char first[2];
};

/* In the middle of a scan in a transaction: reads, and nothing else. */
static int meddle(const void *key, size_t key_len, const void *value, size_t value_len,
                  void *argument)
{
    struct visit *visit = argument;
    holdfast_ptr pointer;
    holdfast_tx second;
    void *address;
    char byte;
    size_t len;
    (void)value;
    (void)value_len;
    WANT(HOLDFAST_BUSY, holdfast_map_remove(visit->map, visit->tx, key, key_len));
    WANT(HOLDFAST_BUSY, holdfast_map_put(visit->map, visit->tx, "new", 3, "", 0));
    WANT(HOLDFAST_BUSY, holdfast_map_put(visit->map, NO_TX, "new", 3, "", 0));
    WANT(HOLDFAST_BUSY, holdfast_map_drop(visit->pool, "v"));
    WANT(HOLDFAST_BUSY, holdfast_tx_alloc(visit->tx, 8, 0, &pointer, &address));
    WANT(HOLDFAST_BUSY, holdfast_tx_set_root(visit->tx, 0));
    WANT(HOLDFAST_BUSY, holdfast_tx_commit(visit->tx));
    WANT(HOLDFAST_BUSY, holdfast_tx_abort(visit->tx));
    WANT(HOLDFAST_BUSY, holdfast_tx_begin(visit->pool, &second));
    WANT(HOLDFAST_BUSY, holdfast_pool_close(visit->pool));
    OK(holdfast_map_get(visit->map, visit->tx, key, key_len, &byte, 1, &len));
    return ++visit->count == 2;
}

/* In the middle of a scan of its own: entries were collected before, so changes are fine. */
static int changes(const void *key, size_t key_len, const void *value, size_t value_len,
                   void *argument)
{
    struct visit *visit = argument;
    (void)value;
    (void)value_len;
    CHECK(key_len == 1);
    /* The bound the scan was given, overwritten: it has a copy. */
    visit->first[0] = '~';
    OK(holdfast_map_remove(visit->map, NO_TX, key, key_len));
    WANT(HOLDFAST_BUSY, holdfast_pool_close(visit->pool));
    visit->count++;
    return 0;
}

static void visits(holdfast_pool pool)
{
    struct visit visit = {pool, {0}, {0}, 0, "a"};
    uint64_t count;
    OK(holdfast_map_create(pool, "v", HOLDFAST_KIND_SKIPLIST, 0, 0, &visit.map));
    OK(holdfast_map_put(visit.map, NO_TX, "a", 1, "1", 1));
    OK(holdfast_map_put(visit.map, NO_TX, "b", 1, "2", 1));
    OK(holdfast_map_put(visit.map, NO_TX, "c", 1, "3", 1));
    OK(holdfast_tx_begin(pool, &visit.tx));
    OK(holdfast_map_scan(visit.map, visit.tx, NULL, 0, NULL, 0, ALL, meddle, &visit));
    CHECK(visit.count == 2);
    OK(holdfast_tx_commit(visit.tx));
    visit.count = 0;
    OK(holdfast_map_scan(visit.map, NO_TX, visit.first, 1, NULL, 0, ALL, changes, &visit));
    CHECK(visit.count == 3);
    OK(holdfast_map_count(visit.map, NO_TX, &count));
    CHECK(count == 0);
}

int main(int count, char **arguments)
{
    holdfast_pool pool;
    holdfast_map map;
    holdfast_cursor cursor, forged;
    struct step step;
    uint32_t kind;
    CHECK(count == 2);
    pool = small_pool(arguments[1]);
    for (kind = 0; kind < 6; kind++)
        across_changes(pool, kind);
    in_transactions(pool);
    visits(pool);
    OK(holdfast_map_open(pool, "t", &map));
    OK(holdfast_cursor_open(map, &cursor));
    forged.id = map.id;
    WANT(HOLDFAST_HANDLE, next(forged, NO_TX, &step));
    OK(holdfast_pool_close(pool));
    WANT(HOLDFAST_HANDLE, next(cursor, NO_TX, &step));
    OK(holdfast_cursor_close(cursor));
    return 0;
}
