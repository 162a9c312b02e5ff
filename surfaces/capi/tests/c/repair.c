/* Damage under an open pool: a transaction that meets it starts over, the scrub repairs the rest,
 * and the events tell of both. */
#include "test.h"
#include <fcntl.h>
#include <unistd.h>

static int progressed(uint64_t done, uint64_t all, void *argument)
{
    CHECK(done <= all);
    ++*(int *)argument;
    return 0;
}

static int cancels(uint64_t done, uint64_t all, void *argument)
{
    (void)done;
    (void)all;
    (void)argument;
    return 1;
}

static int on_event(const holdfast_event *event, void *argument)
{
    char line[200], shorter[4];
    OK(holdfast_event_text(event, sizeof *event, line, sizeof line));
    CHECK(strstr(line, "repaired") != NULL);
    OK(holdfast_event_text(event, sizeof *event, shorter, sizeof shorter));
    CHECK(strlen(shorter) == 3 && strncmp(line, shorter, 3) == 0);
    CHECK(event->outcome == 2);
    ++*(int *)argument;
    return 0;
}

/* Overwrites bytes of an object behind the pool's back. */
static void damage(const char *path, holdfast_ptr pointer)
{
    off_t at = (off_t)(pointer & (((uint64_t)1 << 48) - 1));
    int file = open(path, O_WRONLY);
    CHECK(file >= 0 && pwrite(file, "damaged", 7, at) == 7 && close(file) == 0);
}

struct under_way {
    holdfast_pool pool;
    holdfast_map map;
    holdfast_tx tx;
    int calls;
    int stops;
};

/* What a function that is told of progress may do: anything but a second scrub, or close. */
static int busy_meanwhile(uint64_t done, uint64_t all, void *argument)
{
    struct under_way *way = argument;
    holdfast_report report;
    (void)done;
    (void)all;
    switch (way->calls++) {
    case 0:
        OK(holdfast_map_put(way->map, NO_TX, "k", 1, "v", 1));
        OK(holdfast_check(way->pool, NULL, NULL, &report, sizeof report));
        WANT(HOLDFAST_BUSY, holdfast_pool_close(way->pool));
        /* Left open over the steps of the pass. */
        OK(holdfast_tx_begin(way->pool, &way->tx));
        OK(holdfast_map_put(way->map, way->tx, "l", 1, "w", 1));
        break;
    case 3:
        OK(holdfast_tx_commit(way->tx));
        if (way->stops)
            WANT(HOLDFAST_LOCKED,
                 holdfast_scrub(way->pool, 0, 0, NULL, NULL, &report, sizeof report));
        break;
    case 5:
        /* Not waited for: it would be for itself. */
        if (way->stops)
            OK(holdfast_scrub_pause(way->pool));
    }
    return 0;
}

static void meanwhile(holdfast_pool pool)
{
    struct under_way way = {pool, {0}, {0}, 0, 0};
    holdfast_report report;
    holdfast_tx tx;
    OK(holdfast_map_create(pool, "m", HOLDFAST_KIND_RBTREE, 0, 0, &way.map));
    OK(holdfast_check(pool, busy_meanwhile, &way, &report, sizeof report));
    CHECK(report.found == 0 && way.calls > 5);
    way.calls = 0;
    way.stops = 1;
    OK(holdfast_scrub(pool, 0, 0, busy_meanwhile, &way, &report, sizeof report));
    CHECK(report.stopped == 1 && report.found == 0);
    /* None runs: it can be given up once, and not be paused. */
    WANT(HOLDFAST_NOT_FOUND, holdfast_scrub_pause(pool));
    OK(holdfast_tx_begin(pool, &tx));
    WANT(HOLDFAST_BUSY, holdfast_scrub_cancel(pool));
    OK(holdfast_tx_abort(tx));
    OK(holdfast_scrub_cancel(pool));
    WANT(HOLDFAST_NOT_FOUND, holdfast_scrub_cancel(pool));
}

int main(int count, char **arguments)
{
    holdfast_pool pool;
    holdfast_ptr first, second;
    holdfast_report report;
    holdfast_tx tx;
    char seen[8];
    uint64_t next;
    int calls = 0, events = 0, rounds = 0;
    CHECK(count == 2);
    pool = small_pool(arguments[1]);
    OK(holdfast_tx_begin(pool, &tx));
    OK(holdfast_tx_alloc(tx, 100, 0, &first, NULL));
    OK(holdfast_tx_alloc(tx, 5000, 0, &second, NULL));
    OK(holdfast_tx_write(tx, first, 0, "content", 8));
    OK(holdfast_tx_write(tx, second, 0, "content", 8));
    OK(holdfast_tx_commit(tx));

    damage(arguments[1], first);
    OK(holdfast_tx_begin(pool, &tx));
    do {
        rounds++;
        if (holdfast_tx_read(tx, first, 0, seen, 8) == HOLDFAST_OK)
            OK(holdfast_tx_write(tx, first, 8, seen, 8));
    } while (holdfast_tx_commit(tx) == HOLDFAST_AGAIN);
    CHECK(rounds == 2 && strcmp(seen, "content") == 0);

    damage(arguments[1], second);
    OK(holdfast_check(pool, progressed, &calls, &report, sizeof report));
    CHECK(report.found > 0 && report.repaired == 0 && calls > 0);
    OK(holdfast_scrub(pool, 0, 0, cancels, NULL, &report, sizeof report));
    CHECK(report.stopped == 1);
    OK(holdfast_repair(pool, NULL, NULL, &report, sizeof report));
    OK(holdfast_read(pool, second, 0, seen, 8));
    CHECK(strcmp(seen, "content") == 0);
    OK(holdfast_check(pool, NULL, NULL, &report, sizeof report));
    CHECK(report.found == 0 && report.objects > 2);

    meanwhile(pool);

    OK(holdfast_events(pool, 0, on_event, &events, &next));
    CHECK(events >= 2 && next > 2);
    events = 0;
    OK(holdfast_events(pool, next, on_event, &events, &next));
    CHECK(events == 0);
    OK(holdfast_pool_close(pool));
    return 0;
}
