/* Handles in many hands: threads open, use and give back the same ones at the same time, and each
 * call is done or is a code. */
#include "test.h"
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 3, ROUNDS = 400 };

static const char *path;
static _Atomic uint64_t pool_id, map_id, cursor_id, view_id, tx_id;
static atomic_int done[2];

/* Counts what was done, and lets pass the codes that a handle in other hands may give. */
static int may(holdfast_code code, const char *what)
{
    switch (code) {
    case HOLDFAST_OK:
        atomic_fetch_add(&done[0], 1);
        return 1;
    case HOLDFAST_AGAIN:
    case HOLDFAST_HANDLE:
    case HOLDFAST_BUSY:
    case HOLDFAST_THREAD:
    case HOLDFAST_LOCKED:
    case HOLDFAST_NOT_FOUND:
        atomic_fetch_add(&done[1], 1);
        CHECK(holdfast_message()[0] != '\0');
        return 0;
    default:
        fprintf(stderr, "%s: %d, %s\n", what, (int)code, holdfast_message());
        exit(1);
    }
}

#define MAY(call) may(call, #call)

static void one_round(unsigned chance)
{
    holdfast_pool pool = {pool_id}, opened;
    holdfast_map map = {map_id};
    holdfast_cursor cursor = {cursor_id};
    holdfast_view view = {view_id};
    holdfast_tx tx = {tx_id}, own;
    holdfast_ptr root;
    const void *address;
    uint64_t key[8], value[8];
    size_t key_len, value_len;
    switch (chance % 12) {
    case 0:
        if (MAY(holdfast_pool_open(path, NULL, &opened)))
            pool_id = opened.id;
        break;
    case 1:
        MAY(holdfast_pool_close(pool));
        break;
    case 2:
        if (MAY(holdfast_map_open(pool, "shared", &map)))
            map_id = map.id;
        break;
    case 3:
        MAY(holdfast_map_close(map));
        break;
    case 4:
        if (MAY(holdfast_cursor_open(map, &cursor)))
            cursor_id = cursor.id;
        break;
    case 5:
        MAY(holdfast_cursor_close(cursor));
        break;
    case 6:
        MAY(holdfast_cursor_next(cursor, NO_TX, key, sizeof key, &key_len, value, sizeof value,
                                 &value_len));
        break;
    case 7:
        if (MAY(holdfast_root(pool, &root)) &&
            MAY(holdfast_view_begin(pool, root, 0, &view, &address, NULL)))
            view_id = view.id;
        break;
    case 8:
        MAY(holdfast_view_end(view));
        break;
    case 9:
        /* A transaction of this thread, used by the others and in the end committed here. */
        if (MAY(holdfast_tx_begin(pool, &own))) {
            tx_id = own.id;
            MAY(holdfast_map_put(map, own, "k", 1, "v", 1));
            while (holdfast_tx_commit(own) == HOLDFAST_AGAIN)
                ;
            WANT(HOLDFAST_HANDLE, holdfast_tx_commit(own));
        }
        break;
    case 10:
        CHECK(!MAY(holdfast_tx_commit(tx)));
        CHECK(!MAY(holdfast_map_put(map, tx, "k", 1, "w", 1)));
        break;
    default:
        MAY(holdfast_map_get(map, NO_TX, "k", 1, value, sizeof value, &value_len));
    }
}

static void *works(void *argument)
{
    unsigned chance = *(unsigned *)argument;
    int i;
    for (i = 0; i < ROUNDS; i++) {
        chance = chance * 1103515245u + 12345u;
        one_round(chance >> 16);
    }
    /* Its own are given back with the thread. */
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS];
    unsigned seeds[THREADS];
    holdfast_pool pool;
    holdfast_map map;
    holdfast_tx tx;
    holdfast_ptr object;
    holdfast_report report;
    int i;
    CHECK(count == 2);
    path = arguments[1];
    pool = small_pool(path);
    OK(holdfast_map_create(pool, "shared", HOLDFAST_KIND_CTREE, 0, 0, &map));
    OK(holdfast_tx_begin(pool, &tx));
    OK(holdfast_tx_alloc(tx, 64, 0, &object, NULL));
    OK(holdfast_tx_set_root(tx, object));
    OK(holdfast_tx_commit(tx));
    pool_id = pool.id;
    map_id = map.id;
    /* Ended already; none would mean none is to be used. */
    tx_id = tx.id;
    for (i = 0; i < THREADS; i++) {
        seeds[i] = 17u * (unsigned)i + 1;
        CHECK(pthread_create(&threads[i], NULL, works, &seeds[i]) == 0);
    }
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(done[0] > 10 && done[1] > 10);
    pool.id = pool_id;
    if (holdfast_root(pool, &object) != HOLDFAST_OK)
        OK(holdfast_pool_open(path, NULL, &pool));
    OK(holdfast_check(pool, NULL, NULL, &report, sizeof report));
    CHECK(report.found == 0);
    /* It may stay open: views that nobody knows any more keep it. */
    return 0;
}
