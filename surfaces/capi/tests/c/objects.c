/* Objects, transactions and views: what was committed is there after a reopen, what was not is
 * not, and a conflict is told and done again. */
#include "test.h"

#include <pthread.h>
#include <stddef.h>

struct node {
    uint64_t value;
    holdfast_ptr next;
};

struct work {
    holdfast_ptr node;
    int calls;
};

static uint32_t node_type;

static holdfast_ptr build(holdfast_pool pool)
{
    holdfast_tx tx;
    holdfast_ptr first, second;
    void *address;
    OK(holdfast_tx_begin(pool, &tx));
    OK(holdfast_tx_alloc(tx, sizeof(struct node), node_type, &second, &address));
    ((struct node *)address)->value = 2;
    OK(holdfast_tx_alloc(tx, sizeof(struct node), node_type, &first, &address));
    *(struct node *)address = (struct node){1, second};
    OK(holdfast_tx_set_root(tx, first));
    OK(holdfast_tx_commit(tx));
    return first;
}

static struct node get(holdfast_pool pool, holdfast_ptr pointer)
{
    struct node node;
    OK(holdfast_read(pool, pointer, 0, &node, sizeof node));
    return node;
}

static int add_one(holdfast_tx tx, void *argument)
{
    struct work *work = argument;
    uint64_t *value;
    void *address;
    work->calls++;
    if (holdfast_tx_add_range(tx, work->node, 0, 8, &address) != HOLDFAST_OK)
        return 1;
    value = address;
    *value += 1;
    return 0;
}

static holdfast_pool shared_pool;

static void *adds(void *argument)
{
    int i;
    for (i = 0; i < 500; i++)
        OK(holdfast_run(shared_pool, add_one, argument));
    return NULL;
}

static void counts_together(holdfast_pool pool, holdfast_ptr node)
{
    struct work work[2] = {{node, 0}, {node, 0}};
    pthread_t thread;
    uint64_t before = get(pool, node).value;
    shared_pool = pool;
    CHECK(pthread_create(&thread, NULL, adds, &work[0]) == 0);
    adds(&work[1]);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(get(pool, node).value == before + 1000);
    CHECK(work[0].calls + work[1].calls >= 1000);
}

static void *adds_once(void *argument)
{
    OK(holdfast_run(shared_pool, add_one, argument));
    return NULL;
}

static void starts_over(holdfast_pool pool, holdfast_ptr node)
{
    holdfast_tx tx;
    holdfast_code code;
    struct work work = {node, 0};
    struct node seen;
    pthread_t thread;
    int rounds = 0;
    uint64_t before = get(pool, node).value;
    shared_pool = pool;
    OK(holdfast_tx_begin(pool, &tx));
    do {
        OK(holdfast_tx_read(tx, node, 0, &seen, sizeof seen));
        if (rounds++ == 0) {
            CHECK(pthread_create(&thread, NULL, adds_once, &work) == 0);
            CHECK(pthread_join(thread, NULL) == 0);
        }
        seen.value += 10;
        code = holdfast_tx_write(tx, node, 0, &seen, sizeof seen);
        CHECK(code == HOLDFAST_OK || code == HOLDFAST_AGAIN);
        code = holdfast_tx_commit(tx);
    } while (code == HOLDFAST_AGAIN);
    CHECK(code == HOLDFAST_OK && rounds == 2);
    CHECK(get(pool, node).value == before + 11);
}

static void views(holdfast_pool pool, holdfast_ptr node)
{
    holdfast_view view;
    const void *address;
    uint64_t len;
    WANT(HOLDFAST_WRONG_TYPE, holdfast_view_begin(pool, node, 77, &view, &address, NULL));
    CHECK(view.id == 0 && address == NULL);
    OK(holdfast_view_begin(pool, node, node_type, &view, &address, &len));
    CHECK(len == sizeof(struct node));
    CHECK(((const struct node *)address)->value == get(pool, node).value);
    WANT(HOLDFAST_BUSY, holdfast_pool_close(pool));
    OK(holdfast_view_end(view));
    WANT(HOLDFAST_HANDLE, holdfast_view_end(view));
}

static void opened_and_read(holdfast_pool pool, holdfast_ptr node)
{
    holdfast_tx tx;
    struct node *copy;
    struct node seen;
    void *address, *same;
    uint64_t len;
    uint32_t type;
    OK(holdfast_tx_begin(pool, &tx));
    OK(holdfast_tx_open(tx, node, node_type, &address, &len));
    CHECK(len == sizeof(struct node));
    copy = address;
    copy->value = 12345;
    OK(holdfast_tx_read(tx, node, 0, &seen, sizeof seen));
    CHECK(seen.value == 12345);
    OK(holdfast_tx_open(tx, node, 0, &same, NULL));
    CHECK(same == address);
    /* Its own private copy as the source and as the room. */
    OK(holdfast_tx_write(tx, node, 0, address, sizeof(struct node)));
    OK(holdfast_tx_read(tx, node, 0, address, sizeof(struct node)));
    CHECK(copy->value == 12345);
    OK(holdfast_tx_stat(tx, node, &len, &type));
    CHECK(len == sizeof(struct node) && type == node_type);
    OK(holdfast_tx_abort(tx));
    CHECK(get(pool, node).value != 12345);
    OK(holdfast_tx_begin(pool, &tx));
    OK(holdfast_tx_open(tx, seen.next, 0, &address, NULL));
    OK(holdfast_tx_free(tx, seen.next));
    OK(holdfast_tx_write(tx, node, 8, "\0\0\0\0\0\0\0\0", 8));
    OK(holdfast_tx_commit(tx));
    WANT(HOLDFAST_DANGLING, holdfast_read(pool, seen.next, 0, &seen, sizeof seen));
}

/* The figures are those of the pool: aborts, granules that reads verified, reclaims of the log. */
/* A part of a long object first, then the whole of it. */
static void written_then_opened(holdfast_pool pool)
{
    static unsigned char seen[4000];
    holdfast_tx tx;
    holdfast_ptr object;
    void *address;
    uint64_t len;
    OK(holdfast_tx_begin(pool, &tx));
    OK(holdfast_tx_alloc(tx, sizeof seen, 0, &object, NULL));
    OK(holdfast_tx_commit(tx));
    OK(holdfast_tx_begin(pool, &tx));
    OK(holdfast_tx_write(tx, object, 2000, "part", 4));
    OK(holdfast_tx_open(tx, object, 0, &address, &len));
    CHECK(len == sizeof seen && memcmp((char *)address + 2000, "part", 4) == 0);
    memcpy(address, "whole", 5);
    OK(holdfast_tx_write(tx, object, 3990, "end", 3));
    OK(holdfast_tx_commit(tx));
    OK(holdfast_read(pool, object, 0, seen, sizeof seen));
    CHECK(memcmp(seen, "whole", 5) == 0 && memcmp(seen + 2000, "part", 4) == 0);
    CHECK(memcmp(seen + 3990, "end", 3) == 0 && seen[1999] == 0);
    OK(holdfast_tx_begin(pool, &tx));
    OK(holdfast_tx_free(tx, object));
    OK(holdfast_tx_commit(tx));
}

static void figures(holdfast_pool pool, holdfast_ptr first)
{
    holdfast_info before, after;
    holdfast_tx tx;
    holdfast_ptr pointer;
    static char bytes[4096];
    int i;
    OK(holdfast_pool_info(pool, &before, sizeof before));
    OK(holdfast_tx_begin(pool, &tx));
    OK(holdfast_tx_alloc(tx, 64, 0, &pointer, NULL));
    OK(holdfast_tx_abort(tx));
    OK(holdfast_read(pool, first, 0, bytes, 8));
    OK(holdfast_pool_info(pool, &after, sizeof after));
    CHECK(after.aborts == before.aborts + 1 && after.commits == before.commits);
    CHECK(after.granules_verified > before.granules_verified);
    OK(holdfast_tx_begin(pool, &tx));
    OK(holdfast_tx_alloc(tx, sizeof bytes, 0, &pointer, NULL));
    OK(holdfast_tx_commit(tx));
    for (i = 0; i < 5000 && after.log_reclaims == before.log_reclaims; i++) {
        memset(bytes, i, sizeof bytes);
        OK(holdfast_tx_begin(pool, &tx));
        OK(holdfast_tx_write(tx, pointer, 0, bytes, sizeof bytes));
        OK(holdfast_tx_commit(tx));
        OK(holdfast_pool_info(pool, &after, sizeof after));
    }
    CHECK(after.log_reclaims > before.log_reclaims);
    /* A program that was built before they were there is told what it knows, and no more. */
    after.aborts = 77;
    OK(holdfast_pool_info(pool, &after, offsetof(holdfast_info, aborts)));
    CHECK(after.aborts == 77 && after.size == before.size);
}

int main(int count, char **arguments)
{
    holdfast_pool pool;
    holdfast_ptr first, found;
    holdfast_info info;
    holdfast_tx tx;
    CHECK(count == 2);
    node_type = holdfast_type("test.node", 1);
    CHECK(node_type != 0 && holdfast_type("test.node", 2) != node_type);
    pool = small_pool(arguments[1]);
    first = build(pool);
    CHECK(get(pool, get(pool, first).next).value == 2);
    counts_together(pool, first);
    starts_over(pool, first);
    views(pool, first);
    opened_and_read(pool, first);
    written_then_opened(pool);
    figures(pool, first);
    OK(holdfast_pool_close(pool));

    OK(holdfast_pool_open_read_only(arguments[1], NULL, &pool));
    OK(holdfast_root(pool, &found));
    CHECK(found == first);
    OK(holdfast_pool_info(pool, &info, sizeof info));
    CHECK(info.read_only == 1 && info.was_clean == 1 && info.size == 16 << 20);
    OK(holdfast_tx_begin(pool, &tx));
    WANT(HOLDFAST_READ_ONLY, holdfast_tx_free(tx, first));
    WANT(HOLDFAST_READ_ONLY, holdfast_tx_commit(tx));
    OK(holdfast_pool_close(pool));
    return 0;
}
