/* Every address that is handed over, as null, crooked, in a pool or lying over another: a code and
 * a text each time, and the pool is none the worse. */
#include "test.h"

#define ALL ((size_t)-1)
#define BAD(call)                                                              \
    do {                                                                       \
        WANT(HOLDFAST_INVALID, call);                                          \
        CHECK(holdfast_message()[0] != '\0');                                  \
    } while (0)
/* The same address a byte further: no place for anything but bytes. */
#define CROOKED(pointer) ((void *)((char *)(pointer) + 1))

static int visit(const void *key, size_t key_len, const void *value, size_t value_len, void *argument)
{
    (void)key, (void)key_len, (void)value, (void)value_len;
    ++*(int *)argument;
    return 0;
}

static void pools(holdfast_pool pool)
{
    holdfast_pool none = {1};
    holdfast_options options[2];
    holdfast_info info[2];
    uint64_t text[2] = {~(uint64_t)0, 0};
    BAD(holdfast_options_init(NULL, sizeof *options));
    BAD(holdfast_options_init(options, 0));
    BAD(holdfast_options_init(CROOKED(options), sizeof *options));
    BAD(holdfast_pool_create(NULL, NULL, &none));
    CHECK(none.id == 0);
    BAD(holdfast_pool_create("x", NULL, NULL));
    BAD(holdfast_pool_open(NULL, NULL, &none));
    BAD(holdfast_pool_open("x", NULL, NULL));
    /* No text, but a path like any other. */
    WANT(HOLDFAST_NOT_FOUND, holdfast_pool_open((const char *)text, NULL, &none));
    BAD(holdfast_pool_open("x", NULL, CROOKED(info)));
    BAD(holdfast_pool_open("x", CROOKED(options), &none));
    BAD(holdfast_pool_open_read_only(NULL, NULL, &none));
    BAD(holdfast_pool_open_read_only("x", NULL, NULL));
    BAD(holdfast_pool_info(pool, NULL, sizeof *info));
    BAD(holdfast_pool_info(pool, info, 0));
    BAD(holdfast_pool_info(pool, info, ALL));
    BAD(holdfast_pool_info(pool, CROOKED(info), sizeof *info));
    /* Options no build ever had. */
    OK(holdfast_options_init(options, sizeof *options));
    options->struct_size = 4;
    BAD(holdfast_pool_open("x", options, &none));
    options->struct_size = ~(uint64_t)0;
    BAD(holdfast_pool_open("x", options, &none));
    OK(holdfast_options_init(options, sizeof *options));
    options->parity = 3;
    BAD(holdfast_pool_open("x", options, &none));
    OK(holdfast_options_init(options, sizeof *options));
    options->verify = 3;
    BAD(holdfast_pool_open("x", options, &none));
    OK(holdfast_options_init(options, sizeof *options));
    options->check_ranges = 2;
    BAD(holdfast_pool_open("x", options, &none));
    OK(holdfast_options_init(options, sizeof *options));
    options->reserved = 1;
    BAD(holdfast_pool_open("x", options, &none));
}

static void objects(holdfast_pool pool)
{
    holdfast_tx tx;
    holdfast_ptr object;
    holdfast_view view;
    uint64_t words[4];
    const void *seen;
    void *address;
    char byte;
    CHECK(holdfast_type(NULL, 1) == 0 && holdfast_type("\xff", 1) == 0);
    BAD(holdfast_tx_begin(pool, NULL));
    BAD(holdfast_tx_begin(pool, CROOKED(words)));
    BAD(holdfast_run(pool, NULL, NULL));
    OK(holdfast_tx_begin(pool, &tx));
    BAD(holdfast_tx_alloc(tx, 8, 0, NULL, NULL));
    BAD(holdfast_tx_alloc(tx, 8, 0, CROOKED(words), NULL));
    BAD(holdfast_tx_alloc(tx, 8, 0, &object, CROOKED(words)));
    BAD(holdfast_tx_alloc(tx, 0, 0, &object, NULL));
    OK(holdfast_tx_alloc(tx, 64, 7, &object, NULL));
    BAD(holdfast_tx_open(tx, object, 0, NULL, NULL));
    BAD(holdfast_tx_open(tx, object, 0, CROOKED(words), NULL));
    BAD(holdfast_tx_open(tx, object, 0, &address, CROOKED(words)));
    BAD(holdfast_tx_add_range(tx, object, 0, 8, NULL));
    BAD(holdfast_tx_read(tx, object, 0, NULL, 1));
    BAD(holdfast_tx_read(tx, object, 0, &byte, ALL));
    BAD(holdfast_tx_write(tx, object, 0, NULL, 1));
    BAD(holdfast_tx_write(tx, object, 0, &byte, ALL));
    BAD(holdfast_tx_stat(tx, object, CROOKED(words), NULL));
    BAD(holdfast_tx_stat(tx, object, NULL, CROOKED(words)));
    BAD(holdfast_tx_root(tx, NULL));
    /* Nothing of that doomed the transaction. */
    OK(holdfast_tx_stat(tx, object, NULL, NULL));
    OK(holdfast_tx_read(tx, object, 0, NULL, 0));
    OK(holdfast_tx_write(tx, object, 0, NULL, 0));
    OK(holdfast_tx_set_root(tx, object));
    OK(holdfast_tx_commit(tx));
    BAD(holdfast_root(pool, NULL));
    BAD(holdfast_read(pool, object, 0, NULL, 1));
    BAD(holdfast_read(pool, object, 0, &byte, ALL));
    BAD(holdfast_view_begin(pool, object, 0, NULL, &seen, NULL));
    BAD(holdfast_view_begin(pool, object, 0, &view, NULL, NULL));
    BAD(holdfast_view_begin(pool, object, 0, &view, &seen, CROOKED(words)));
    CHECK(view.id == 0);
}

static void maps(holdfast_pool pool)
{
    holdfast_map map;
    holdfast_cursor cursor;
    holdfast_map_info info;
    uint64_t words[4];
    uint32_t kind;
    size_t len = 0;
    char byte;
    int visited = 0;
    BAD(holdfast_kind_from_name(NULL, &kind));
    BAD(holdfast_kind_from_name("btree", NULL));
    BAD(holdfast_map_create(pool, NULL, 1, 0, 0, &map));
    BAD(holdfast_map_create(pool, "m", 1, 0, 0, NULL));
    BAD(holdfast_map_create(pool, "\xff", 1, 0, 0, &map));
    BAD(holdfast_map_open(pool, NULL, &map));
    BAD(holdfast_map_open(pool, "m", NULL));
    BAD(holdfast_map_drop(pool, NULL));
    OK(holdfast_map_create(pool, "m", HOLDFAST_KIND_BTREE, 0, 0, &map));
    BAD(holdfast_map_describe(map, NULL, sizeof info));
    BAD(holdfast_map_describe(map, &info, 0));
    BAD(holdfast_map_put(map, NO_TX, NULL, 1, "v", 1));
    BAD(holdfast_map_put(map, NO_TX, "k", 1, NULL, 1));
    BAD(holdfast_map_put(map, NO_TX, "k", ALL, "v", 1));
    BAD(holdfast_map_put(map, NO_TX, "k", 1, "v", ALL));
    OK(holdfast_map_put(map, NO_TX, NULL, 0, NULL, 0));
    BAD(holdfast_map_get(map, NO_TX, NULL, 1, &byte, 1, &len));
    BAD(holdfast_map_get(map, NO_TX, "k", 1, NULL, 1, &len));
    BAD(holdfast_map_get(map, NO_TX, "k", 1, &byte, 1, NULL));
    BAD(holdfast_map_get(map, NO_TX, "k", 1, &byte, 1, CROOKED(words)));
    BAD(holdfast_map_remove(map, NO_TX, NULL, 1));
    BAD(holdfast_map_count(map, NO_TX, NULL));
    BAD(holdfast_map_scan(map, NO_TX, NULL, 0, NULL, 0, ALL, NULL, NULL));
    BAD(holdfast_map_scan(map, NO_TX, NULL, 1, NULL, 0, ALL, visit, &visited));
    BAD(holdfast_map_scan_back(map, NO_TX, NULL, 0, NULL, 1, ALL, visit, &visited));
    BAD(holdfast_cursor_open(map, NULL));
    OK(holdfast_cursor_open(map, &cursor));
    BAD(holdfast_cursor_next(cursor, NO_TX, NULL, 1, &words[0], &byte, 1, &words[1]));
    BAD(holdfast_cursor_next(cursor, NO_TX, &byte, 1, NULL, NULL, 0, &words[1]));
    BAD(holdfast_cursor_next(cursor, NO_TX, &byte, 1, &words[0], NULL, 1, &words[1]));
    BAD(holdfast_cursor_next(cursor, NO_TX, &byte, 1, &words[0], NULL, 0, NULL));
    /* What is read and what is written lie over each other. */
    BAD(holdfast_map_get(map, NO_TX, &byte, 1, &byte, 1, &len));
    BAD(holdfast_map_get(map, NO_TX, words, 8, NULL, 0, &words[0]));
    BAD(holdfast_map_get(map, NO_TX, "k", 1, words, 32, &words[3]));
    BAD(holdfast_cursor_next(cursor, NO_TX, words, 16, &words[3], &words[1], 8, &words[2]));
    BAD(holdfast_cursor_next(cursor, NO_TX, words, 16, &words[1], &words[3], 8, &words[2]));
    BAD(holdfast_cursor_next(cursor, NO_TX, &byte, 1, &words[1], NULL, 0, &words[1]));
    OK(holdfast_cursor_next(cursor, NO_TX, NULL, 0, &words[0], NULL, 0, &words[1]));
    OK(holdfast_cursor_close(cursor));
    CHECK(visited == 0);
    OK(holdfast_map_close(map));
}

static void passes(holdfast_pool pool)
{
    holdfast_report report[2];
    holdfast_event event = {0};
    uint64_t words[2];
    char line[200];
    BAD(holdfast_check(pool, NULL, NULL, NULL, sizeof *report));
    BAD(holdfast_check(pool, NULL, NULL, report, 0));
    BAD(holdfast_scrub(pool, 0, 0, NULL, NULL, NULL, sizeof *report));
    BAD(holdfast_scrub(pool, 0, 0, NULL, NULL, CROOKED(report), sizeof *report));
    BAD(holdfast_repair(pool, NULL, NULL, NULL, sizeof *report));
    BAD(holdfast_repair(pool, NULL, NULL, report, ALL));
    BAD(holdfast_events(pool, 0, NULL, NULL, NULL));
    BAD(holdfast_event_text(NULL, sizeof event, line, sizeof line));
    BAD(holdfast_event_text(CROOKED(words), sizeof event, line, sizeof line));
    BAD(holdfast_event_text(&event, sizeof event + 1, line, sizeof line));
    BAD(holdfast_event_text(&event, 0, line, sizeof line));
    BAD(holdfast_event_text(&event, sizeof event, NULL, 1));
    BAD(holdfast_event_text(&event, sizeof event, line, 0));
    /* An event whose numbers mean nothing is a text all the same; so is one of an older build. */
    memset(&event, 0xff, sizeof event);
    OK(holdfast_event_text(&event, sizeof event, line, sizeof line));
    OK(holdfast_event_text(&event, 8, line, sizeof line));
    CHECK(strncmp(line, "#18446744073709551615 ", 22) == 0);
}

/* An address that a view lent, taken for room: it is in the file's mapping, which is not to be
 * written to, by nobody. */
static void in_a_pool(holdfast_pool pool)
{
    holdfast_ptr root;
    holdfast_view view;
    holdfast_map map;
    const void *lent;
    char copy[64], before[64];
    void *there;
    size_t len;
    OK(holdfast_root(pool, &root));
    OK(holdfast_view_begin(pool, root, 7, &view, &lent, NULL));
    memcpy(before, lent, sizeof before);
    there = (void *)(uintptr_t)lent;
    BAD(holdfast_read(pool, root, 0, there, 64));
    BAD(holdfast_root(pool, there));
    BAD(holdfast_tx_begin(pool, there));
    BAD(holdfast_pool_info(pool, there, sizeof(holdfast_info)));
    BAD(holdfast_options_init(there, sizeof(holdfast_options)));
    OK(holdfast_map_open(pool, "m", &map));
    BAD(holdfast_map_get(map, NO_TX, NULL, 0, there, 64, &len));
    BAD(holdfast_map_get(map, NO_TX, NULL, 0, copy, 64, there));
    /* To read from there is what it is for. */
    OK(holdfast_map_put(map, NO_TX, lent, 64, lent, 64));
    OK(holdfast_map_get(map, NO_TX, lent, 64, copy, 64, &len));
    CHECK(len == 64 && memcmp(copy, lent, 64) == 0 && memcmp(before, lent, 64) == 0);
    OK(holdfast_view_end(view));
}

int main(int count, char **arguments)
{
    holdfast_pool pool;
    holdfast_report report;
    CHECK(count == 2);
    CHECK(holdfast_message()[0] == '\0' && holdfast_version()[0] != '\0');
    pool = small_pool(arguments[1]);
    pools(pool);
    objects(pool);
    maps(pool);
    passes(pool);
    in_a_pool(pool);
    OK(holdfast_check(pool, NULL, NULL, &report, sizeof report));
    CHECK(report.found == 0);
    OK(holdfast_pool_close(pool));
    return 0;
}
