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

static void nulls(holdfast_pool pool)
{
    holdfast_pool none = {0};
    holdfast_tx no_tx = {0};
    holdfast_ptr pointer;
    char byte;
    WANT(HOLDFAST_INVALID, holdfast_pool_open(NULL, NULL, &none));
    WANT(HOLDFAST_INVALID, holdfast_pool_open("x", NULL, NULL));
    WANT(HOLDFAST_INVALID, holdfast_pool_open("\xff", NULL, &none));
    WANT(HOLDFAST_NOT_FOUND, holdfast_pool_open("no such file", NULL, &none));
    WANT(HOLDFAST_INVALID, holdfast_pool_info(pool, NULL, sizeof(holdfast_info)));
    WANT(HOLDFAST_HANDLE, holdfast_pool_close(none));
    WANT(HOLDFAST_HANDLE, holdfast_tx_commit(no_tx));
    WANT(HOLDFAST_HANDLE, holdfast_tx_alloc(no_tx, 8, 0, &pointer, NULL));
    WANT(HOLDFAST_INVALID, holdfast_tx_begin(pool, NULL));
    WANT(HOLDFAST_INVALID, holdfast_run(pool, NULL, NULL));
    WANT(HOLDFAST_DANGLING, holdfast_read(pool, 0, 0, &byte, 1));
    WANT(HOLDFAST_INVALID, holdfast_read(pool, 64, 0, NULL, 1));
    WANT(HOLDFAST_INVALID, holdfast_read(pool, 64, 0, &byte, (size_t)-1));
    WANT(HOLDFAST_DANGLING, holdfast_read(pool, 0xdeadbeefdeadbeef, 0, &byte, 1));
    WANT(HOLDFAST_INVALID, holdfast_events(pool, 0, NULL, NULL, NULL));
    WANT(HOLDFAST_INVALID, holdfast_repair(pool, NULL, NULL, NULL, 8));
    uint64_t words[4];
    holdfast_pool *crooked = (holdfast_pool *)((char *)words + 1);
    WANT(HOLDFAST_INVALID, holdfast_pool_open("no such file", NULL, crooked));
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
    OK(holdfast_tx_begin(pool, &tx));
    /* A pointer newer than its place may be the trace of a lost write: that is looked at first. */
    WANT(HOLDFAST_AGAIN, holdfast_tx_free(tx, freed));
    WANT(HOLDFAST_AGAIN, holdfast_tx_free(tx, freed));
    WANT(HOLDFAST_AGAIN, holdfast_tx_commit(tx));
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

/* A child has the handles, and may use none of them: the file is its parent's. */
static void forked(holdfast_pool pool)
{
    holdfast_tx tx, own;
    holdfast_ptr pointer;
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
    nulls(pool);
    mixed_up(pool);
    transactions(pool);
    WANT(HOLDFAST_CANCELLED, holdfast_run(pool, stops, NULL));
    abandoned(pool);
    forked(pool);
    OK(holdfast_pool_close(pool));
    WANT(HOLDFAST_HANDLE, holdfast_pool_close(pool));
    return 0;
}
