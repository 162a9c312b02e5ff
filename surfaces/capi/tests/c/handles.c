/* Bad input: every one of these is a code and a text, and the pool is none the worse. */
#include "test.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static holdfast_tx of_another_thread;

static void *on_another_thread(void *argument)
{
    (void)argument;
    WANT(HOLDFAST_THREAD, holdfast_tx_commit(of_another_thread));
    WANT(HOLDFAST_THREAD, holdfast_tx_abort(of_another_thread));
    return NULL;
}

/* Null, made up, of another sort: no number is a handle but one that was given out. */
static void made_up(holdfast_pool pool)
{
    static const uint64_t ids[] = {0, 1, 0x5100000000000000, 0x5100000100000fff,
                                   0x5200000100000000, ~(uint64_t)0};
    char byte;
    size_t i, len;
    holdfast_ptr pointer;
    holdfast_report report;
    for (i = 0; i < sizeof ids / sizeof *ids; i++) {
        holdfast_pool none = {ids[i]};
        holdfast_tx tx = {ids[i]};
        holdfast_map map = {ids[i]};
        holdfast_cursor cursor = {ids[i]};
        holdfast_view view = {ids[i]};
        void *address;
        CHECK(ids[i] != pool.id);
        WANT(HOLDFAST_HANDLE, holdfast_pool_close(none));
        WANT(HOLDFAST_HANDLE, holdfast_pool_grow(none, 1 << 30));
        WANT(HOLDFAST_HANDLE, holdfast_root(none, &pointer));
        WANT(HOLDFAST_HANDLE, holdfast_read(none, 64, 0, &byte, 1));
        WANT(HOLDFAST_HANDLE, holdfast_check(none, NULL, NULL, &report, sizeof report));
        WANT(HOLDFAST_HANDLE, holdfast_scrub(none, 0, 0, NULL, NULL, &report, sizeof report));
        WANT(HOLDFAST_HANDLE, holdfast_scrub_pause(none));
        WANT(HOLDFAST_HANDLE, holdfast_scrub_cancel(none));
        WANT(HOLDFAST_HANDLE, holdfast_map_open(none, "m", &map));
        map.id = ids[i];
        WANT(HOLDFAST_HANDLE, holdfast_map_drop(none, "m"));
        WANT(HOLDFAST_HANDLE, holdfast_tx_commit(tx));
        WANT(HOLDFAST_HANDLE, holdfast_tx_abort(tx));
        WANT(HOLDFAST_HANDLE, holdfast_tx_alloc(tx, 8, 0, &pointer, NULL));
        WANT(HOLDFAST_HANDLE, holdfast_tx_open(tx, 64, 0, &address, NULL));
        WANT(HOLDFAST_HANDLE, holdfast_tx_free(tx, 64));
        WANT(HOLDFAST_HANDLE, holdfast_tx_set_root(tx, 0));
        WANT(HOLDFAST_HANDLE, holdfast_map_put(map, NO_TX, "a", 1, "b", 1));
        WANT(HOLDFAST_HANDLE, holdfast_map_get(map, NO_TX, "a", 1, &byte, 1, &len));
        WANT(HOLDFAST_HANDLE, holdfast_map_close(map));
        WANT(HOLDFAST_HANDLE, holdfast_cursor_open(map, &cursor));
        cursor.id = ids[i];
        WANT(HOLDFAST_HANDLE, holdfast_cursor_rewind(cursor));
        WANT(HOLDFAST_HANDLE, holdfast_view_end(view));
    }
    CHECK(strstr(holdfast_message(), "no handle") != NULL);
}

/* Pointers that name nothing: null, made up, freed. */
static void pointers(holdfast_pool pool)
{
    static const holdfast_ptr bad[] = {0, 1, 64, 0xdeadbeefdeadbeef, ~(uint64_t)0,
                                       ((uint64_t)1 << 48) - 64};
    holdfast_tx tx;
    holdfast_view view;
    const void *seen;
    void *address;
    char byte;
    size_t i;
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        WANT(HOLDFAST_DANGLING, holdfast_read(pool, bad[i], 0, &byte, 1));
        WANT(HOLDFAST_DANGLING, holdfast_view_begin(pool, bad[i], 0, &view, &seen, NULL));
        OK(holdfast_tx_begin(pool, &tx));
        WANT(HOLDFAST_DANGLING, holdfast_tx_stat(tx, bad[i], NULL, NULL));
        WANT(HOLDFAST_DANGLING, holdfast_tx_read(tx, bad[i], 0, &byte, 1));
        WANT(HOLDFAST_DANGLING, holdfast_tx_open(tx, bad[i], 0, &address, NULL));
        OK(holdfast_tx_abort(tx));
        OK(holdfast_tx_begin(pool, &tx));
        WANT(HOLDFAST_DANGLING, holdfast_tx_free(tx, bad[i]));
        WANT(HOLDFAST_DANGLING, holdfast_tx_commit(tx));
    }
}

/* What is of one pool is nothing in another. */
static void of_another_pool(holdfast_pool pool, const char *path)
{
    char other_path[300];
    holdfast_pool other;
    holdfast_map map;
    holdfast_cursor cursor;
    holdfast_tx tx;
    holdfast_ptr pointer = 0;
    char byte;
    size_t len, value_len;
    int i;
    snprintf(other_path, sizeof other_path, "%s.other", path);
    other = small_pool(other_path);
    OK(holdfast_tx_begin(other, &tx));
    for (i = 0; i < 50; i++)
        OK(holdfast_tx_alloc(tx, 1000, 7, &pointer, NULL));
    OK(holdfast_tx_commit(tx));
    WANT(HOLDFAST_DANGLING, holdfast_read(pool, pointer, 0, &byte, 1));
    OK(holdfast_map_create(other, "m", HOLDFAST_KIND_HASHMAP, 0, 0, &map));
    OK(holdfast_cursor_open(map, &cursor));
    OK(holdfast_tx_begin(pool, &tx));
    WANT(HOLDFAST_INVALID, holdfast_map_put(map, tx, "a", 1, "b", 1));
    WANT(HOLDFAST_INVALID, holdfast_map_get(map, tx, "a", 1, &byte, 1, &len));
    WANT(HOLDFAST_INVALID, holdfast_cursor_next(cursor, tx, NULL, 0, &len, &byte, 1, &value_len));
    OK(holdfast_tx_abort(tx));
    OK(holdfast_pool_close(other));
    CHECK(unlink(other_path) == 0);
}

static void mixed_up(holdfast_pool pool)
{
    holdfast_tx tx;
    holdfast_map map, forged;
    holdfast_pool wrong;
    OK(holdfast_map_create(pool, "m", HOLDFAST_KIND_BTREE, 0, 0, &map));
    wrong.id = map.id;
    WANT(HOLDFAST_HANDLE, holdfast_tx_begin(wrong, &tx));
    CHECK(strstr(holdfast_message(), "map") != NULL);
    wrong.id = (uint64_t)(uintptr_t)&wrong;
    WANT(HOLDFAST_HANDLE, holdfast_tx_begin(wrong, &tx));
    forged.id = map.id + 1;
    WANT(HOLDFAST_HANDLE, holdfast_map_remove(forged, NO_TX, "a", 1));
    OK(holdfast_map_close(map));
    WANT(HOLDFAST_HANDLE, holdfast_map_close(map));
    WANT(HOLDFAST_HANDLE, holdfast_map_put(map, NO_TX, "a", 1, "b", 1));
    WANT(HOLDFAST_WRONG_TYPE, holdfast_map_create(pool, "m", HOLDFAST_KIND_BTREE, 1, 0, &map));
    WANT(HOLDFAST_WRONG_TYPE, holdfast_map_create(pool, "m", HOLDFAST_KIND_HASHMAP, 0, 0, &map));
    WANT(HOLDFAST_INVALID, holdfast_map_create(pool, "m", 77, 0, 0, &map));
    WANT(HOLDFAST_NOT_FOUND, holdfast_map_open(pool, "another", &map));
}

static void transactions(holdfast_pool pool)
{
    holdfast_tx tx, second;
    holdfast_ptr pointer, freed;
    void *address;
    pthread_t thread;
    OK(holdfast_tx_begin(pool, &tx));
    WANT(HOLDFAST_BUSY, holdfast_tx_begin(pool, &second));
    WANT(HOLDFAST_BUSY, holdfast_pool_close(pool));
    WANT(HOLDFAST_BUSY, holdfast_root(pool, &pointer));
    of_another_thread = tx;
    CHECK(pthread_create(&thread, NULL, on_another_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(holdfast_tx_alloc(tx, 64, 7, &pointer, &address));
    OK(holdfast_tx_alloc(tx, 64, 7, &freed, NULL));
    OK(holdfast_tx_free(tx, freed));
    OK(holdfast_tx_commit(tx));
    WANT(HOLDFAST_HANDLE, holdfast_tx_commit(tx));
    WANT(HOLDFAST_HANDLE, holdfast_tx_read(tx, pointer, 0, &address, 8));
    /* A change that fails dooms; the commit tells why. */
    OK(holdfast_tx_begin(pool, &tx));
    WANT(HOLDFAST_WRONG_TYPE, holdfast_tx_open(tx, pointer, 8, &address, NULL));
    WANT(HOLDFAST_WRONG_TYPE, holdfast_tx_commit(tx));
    OK(holdfast_tx_begin(pool, &tx));
    WANT(HOLDFAST_BOUNDS, holdfast_tx_read(tx, pointer, 60, &address, 8));
    WANT(HOLDFAST_BOUNDS, holdfast_tx_write(tx, pointer, 60, "12345678", 8));
    WANT(HOLDFAST_BOUNDS, holdfast_tx_commit(tx));
    static const uint64_t beyond[][2] = {
        {0, 65}, {64, 1}, {65, 0}, {~(uint64_t)0, 2}, {8, ~(uint64_t)0}};
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        OK(holdfast_tx_begin(pool, &tx));
        OK(holdfast_tx_add_range(tx, pointer, 8, 56, &address));
        WANT(HOLDFAST_BOUNDS,
             holdfast_tx_add_range(tx, pointer, beyond[i][0], beyond[i][1], &address));
        CHECK(address == NULL);
        WANT(HOLDFAST_BOUNDS, holdfast_tx_commit(tx));
    }
    OK(holdfast_tx_begin(pool, &tx));
    /* Parity bears out what the place says: nothing has to be looked after first. */
    WANT(HOLDFAST_DANGLING, holdfast_tx_free(tx, freed));
    WANT(HOLDFAST_DANGLING, holdfast_tx_free(tx, freed));
    WANT(HOLDFAST_DANGLING, holdfast_tx_commit(tx));
    OK(holdfast_tx_begin(pool, &tx));
    WANT(HOLDFAST_DANGLING, holdfast_tx_free(tx, freed));
    OK(holdfast_tx_abort(tx));
    /* Writing beyond the private copy is found by its guard words. */
    OK(holdfast_tx_begin(pool, &tx));
    OK(holdfast_tx_open(tx, pointer, 7, &address, NULL));
    memset(address, 1, 65);
    WANT(HOLDFAST_OVERRUN, holdfast_tx_commit(tx));
}

static int stops(holdfast_tx tx, void *argument)
{
    (void)argument;
    WANT(HOLDFAST_BUSY, holdfast_tx_commit(tx));
    WANT(HOLDFAST_BUSY, holdfast_tx_abort(tx));
    return 3;
}

static void *leaves_one(void *argument)
{
    holdfast_tx tx;
    holdfast_ptr pointer;
    OK(holdfast_tx_begin(*(holdfast_pool *)argument, &tx));
    OK(holdfast_tx_alloc(tx, 64, 7, &pointer, NULL));
    OK(holdfast_tx_set_root(tx, pointer));
    return NULL;
}

/* A thread that ends with a transaction under way has aborted it; the pool can be closed. */
static void abandoned(holdfast_pool pool)
{
    holdfast_ptr root = 1;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, leaves_one, &pool) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(holdfast_root(pool, &root));
    CHECK(root == 0);
}

static int no_event(const holdfast_event *event, void *argument)
{
    (void)event;
    (void)argument;
    return 0;
}

/* Views that a program forgets are an error at last, and never a wait without end. */
static void forgotten(holdfast_pool pool)
{
    enum { MANY = 200 };
    holdfast_view views[MANY], one;
    holdfast_ptr pointer, another;
    holdfast_tx tx;
    const void *seen;
    int count = 0;
    holdfast_code code;
    OK(holdfast_tx_begin(pool, &tx));
    OK(holdfast_tx_alloc(tx, 64, 7, &pointer, NULL));
    OK(holdfast_tx_alloc(tx, 64, 7, &another, NULL));
    OK(holdfast_tx_commit(tx));
    do {
        code = holdfast_view_begin(pool, pointer, 0, &views[count], &seen, NULL);
    } while (code == HOLDFAST_OK && ++count < MANY);
    CHECK(code == HOLDFAST_BUSY && count >= 64 && seen == NULL);
    OK(holdfast_view_begin(pool, another, 0, &one, &seen, NULL));
    OK(holdfast_view_end(one));
    OK(holdfast_view_end(views[--count]));
    OK(holdfast_view_begin(pool, pointer, 0, &views[count++], &seen, NULL));
    while (count > 0)
        OK(holdfast_view_end(views[--count]));
}

/* A child has the handles, and may use none of them: the file is its parent's. */
static void forked(holdfast_pool pool)
{
    holdfast_tx tx, own;
    holdfast_ptr pointer;
    holdfast_view view;
    holdfast_report report;
    holdfast_info info;
    const void *seen;
    int status = -1;
    pid_t child;
    OK(holdfast_tx_begin(pool, &tx));
    OK(holdfast_tx_alloc(tx, 64, 7, &pointer, NULL));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(holdfast_tx_set_root(tx, pointer) != HOLDFAST_OK);
        CHECK(holdfast_tx_commit(tx) != HOLDFAST_OK);
        CHECK(holdfast_tx_begin(pool, &own) == HOLDFAST_INVALID);
        CHECK(holdfast_root(pool, &pointer) == HOLDFAST_INVALID);
        CHECK(holdfast_pool_grow(pool, 64 << 20) == HOLDFAST_INVALID);
        CHECK(holdfast_pool_close(pool) == HOLDFAST_INVALID);
        CHECK(holdfast_view_begin(pool, pointer, 0, &view, &seen, NULL) == HOLDFAST_INVALID);
        CHECK(holdfast_check(pool, NULL, NULL, &report, sizeof report) == HOLDFAST_INVALID);
        CHECK(holdfast_scrub(pool, 0, 0, NULL, NULL, &report, sizeof report) == HOLDFAST_INVALID);
        OK(holdfast_pool_info(pool, &info, sizeof info));
        OK(holdfast_events(pool, 0, no_event, NULL, NULL));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(holdfast_tx_set_root(tx, pointer));
    OK(holdfast_tx_commit(tx));
}

int main(int count, char **arguments)
{
    holdfast_pool pool, again;
    CHECK(count == 2);
    pool = small_pool(arguments[1]);
    WANT(HOLDFAST_EXISTS, holdfast_pool_create(arguments[1], NULL, &again));
    CHECK(again.id == 0);
    made_up(pool);
    pointers(pool);
    mixed_up(pool);
    of_another_pool(pool, arguments[1]);
    transactions(pool);
    WANT(HOLDFAST_CANCELLED, holdfast_run(pool, stops, NULL));
    abandoned(pool);
    forgotten(pool);
    forked(pool);
    OK(holdfast_pool_close(pool));
    WANT(HOLDFAST_HANDLE, holdfast_pool_close(pool));
    return 0;
}
