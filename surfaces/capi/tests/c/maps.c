/* Maps, alone and in transactions, and what may be done while their entries are visited. */
#include "test.h"

struct seen {
    holdfast_tx tx;
    holdfast_map map;
    size_t count;
    char keys[64];
};

static int note(const void *key, size_t key_len, const void *value, size_t value_len, void *argument)
{
    struct seen *seen = argument;
    (void)value;
    CHECK(value_len == 1 && key_len == 1);
    seen->keys[seen->count++] = *(const char *)key;
    return 0;
}

static int meddle(const void *key, size_t key_len, const void *value, size_t value_len,
                  void *argument)
{
    struct seen *seen = argument;
    char byte;
    size_t len;
    (void)value;
    (void)value_len;
    WANT(HOLDFAST_BUSY, holdfast_map_remove(seen->map, seen->tx, key, key_len));
    WANT(HOLDFAST_BUSY, holdfast_tx_commit(seen->tx));
    OK(holdfast_map_get(seen->map, seen->tx, key, key_len, &byte, 1, &len));
    return ++seen->count == 2;
}

static void one(holdfast_pool pool, uint32_t kind, const char *name)
{
    holdfast_map map, same;
    holdfast_tx tx;
    struct seen seen = {0};
    char byte;
    size_t len;
    uint64_t count;
    OK(holdfast_map_create(pool, name, kind, HOLDFAST_CONTENT_TEXT, HOLDFAST_CONTENT_BYTES, &map));
    OK(holdfast_map_put(map, NO_TX, "b", 1, "2", 1));
    OK(holdfast_map_put(map, NO_TX, "a", 1, "1", 1));
    WANT(HOLDFAST_INVALID, holdfast_map_put(map, NO_TX, "\xff", 1, "1", 1));
    OK(holdfast_map_get(map, NO_TX, "a", 1, &byte, 1, &len));
    CHECK(byte == '1' && len == 1);
    WANT(HOLDFAST_ROOM, holdfast_map_get(map, NO_TX, "a", 1, NULL, 0, &len));
    CHECK(len == 1);
    WANT(HOLDFAST_NOT_FOUND, holdfast_map_get(map, NO_TX, "z", 1, &byte, 1, &len));
    WANT(HOLDFAST_INVALID, holdfast_map_get(map, NO_TX, &byte, 1, &byte, 1, &len));

    OK(holdfast_tx_begin(pool, &tx));
    WANT(HOLDFAST_BUSY, holdfast_map_put(map, NO_TX, "c", 1, "3", 1));
    OK(holdfast_map_put(map, tx, "c", 1, "3", 1));
    WANT(HOLDFAST_NOT_FOUND, holdfast_map_remove(map, tx, "z", 1));
    OK(holdfast_map_remove(map, tx, "b", 1));
    seen.tx = tx;
    seen.map = map;
    OK(holdfast_map_scan(map, tx, NULL, 0, 99, meddle, &seen));
    CHECK(seen.count == 2);
    OK(holdfast_tx_commit(tx));

    OK(holdfast_map_open(pool, name, &same));
    OK(holdfast_map_count(same, NO_TX, &count));
    CHECK(count == 2);
    memset(&seen, 0, sizeof seen);
    OK(holdfast_map_scan(same, NO_TX, NULL, 0, 1, note, &seen));
    CHECK(seen.count == 1);
    memset(&seen, 0, sizeof seen);
    if (kind == HOLDFAST_KIND_HASH) {
        WANT(HOLDFAST_INVALID, holdfast_map_scan(same, NO_TX, "b", 1, 99, note, &seen));
    } else {
        OK(holdfast_map_scan(same, NO_TX, "b", 1, 99, note, &seen));
        CHECK(seen.count == 1 && seen.keys[0] == 'c');
    }
    OK(holdfast_map_close(same));
    /* `map` is left to the pool's close. */
}

static void long_keys(holdfast_pool pool)
{
    static char key[1 << 20];
    holdfast_map map;
    holdfast_tx tx;
    OK(holdfast_map_create(pool, "long", HOLDFAST_KIND_BTREE, 0, 0, &map));
    WANT(HOLDFAST_NO_SPACE, holdfast_map_put(map, NO_TX, key, sizeof key, "1", 1));
    OK(holdfast_tx_begin(pool, &tx));
    OK(holdfast_map_put(map, tx, "a", 1, "1", 1));
    WANT(HOLDFAST_NO_SPACE, holdfast_map_put(map, tx, key, sizeof key, "1", 1));
    WANT(HOLDFAST_NO_SPACE, holdfast_tx_commit(tx));
    WANT(HOLDFAST_NOT_FOUND, holdfast_map_remove(map, NO_TX, "a", 1));
}

int main(int count, char **arguments)
{
    holdfast_pool pool;
    holdfast_map map;
    CHECK(count == 2);
    pool = small_pool(arguments[1]);
    one(pool, HOLDFAST_KIND_BTREE, "tree");
    one(pool, HOLDFAST_KIND_HASH, "table");
    long_keys(pool);
    OK(holdfast_map_open(pool, "tree", &map));
    OK(holdfast_pool_close(pool));
    WANT(HOLDFAST_HANDLE, holdfast_map_put(map, NO_TX, "a", 1, "1", 1));
    return 0;
}
