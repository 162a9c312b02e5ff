/* The C++ header: what goes gives back, what is thrown aborts, and types are looked at. */
#include <holdfast.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

struct node {
    std::uint64_t value;
    holdfast::ptr<node> next;
};
HOLDFAST_TYPE(node, 1);

struct other {
    std::uint64_t a, b;
};
HOLDFAST_TYPE(other, 1);

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                        \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

template <typename Call> static holdfast_code code_of(Call call)
{
    try {
        call();
    } catch (const holdfast::error &error) {
        CHECK(error.what()[0] != '\0');
        return error.code();
    }
    return HOLDFAST_OK;
}

static void objects(holdfast::pool &pool)
{
    holdfast::ptr<node> first{0};
    pool.run([&](holdfast::tx &tx) {
        first = tx.make(node{1, tx.make(node{2, {0}})});
        tx.set_root(first);
    });
    CHECK(pool.root<node>() == first);
    CHECK(pool.read(pool.read(first).next).value == 2);

    CHECK(code_of([&] { pool.look(holdfast::ptr<other>{first.raw}); }) == HOLDFAST_WRONG_TYPE);
    bool thrown = false;
    try {
        pool.run([&](holdfast::tx &tx) {
            tx.open(first)->value = 99;
            throw std::string("no");
        });
    } catch (const std::string &text) {
        thrown = text == "no";
    }
    CHECK(thrown && pool.read(first).value == 1);

    {
        auto tx = pool.begin();
        tx.open(first)->value = 98;
    }
    CHECK(pool.look(first)->value == 1);
    auto tx = pool.begin();
    tx.open(first)->value = 3;
    CHECK(tx.commit());
    CHECK(pool.look(first)->value == 3);
}

/* A commit that another thread tried has not ended it: it is still aborted when it goes. */
static void elsewhere(holdfast::pool &pool)
{
    const auto first = pool.root<node>();
    {
        auto tx = pool.begin();
        tx.open(first)->value = 97;
        std::thread([&] {
            CHECK(code_of([&] { tx.commit(); }) == HOLDFAST_THREAD);
        }).join();
    }
    CHECK(pool.begin().commit());
    CHECK(pool.read(first).value == 3);
}

/* An object that is longer than its type is not taken for one. */
static void lengths(holdfast::pool &pool)
{
    auto tx = pool.begin();
    holdfast::ptr<node> longer{0};
    holdfast::check(holdfast_tx_alloc(tx.handle(), sizeof(node) + 1,
                                      holdfast::type_of<node>::number(), &longer.raw, nullptr));
    int refused = 0;
    try {
        tx.read(longer);
    } catch (const std::length_error &) {
        refused++;
    }
    try {
        tx.open(longer);
    } catch (const std::length_error &) {
        refused++;
    }
    CHECK(refused == 2);
}

static void together(holdfast::pool &pool)
{
    const auto counter = pool.root<node>();
    const auto before = pool.read(counter).value;
    auto adds = [&] {
        for (int i = 0; i < 300; i++)
            pool.run([&](holdfast::tx &tx) { tx.open(counter)->value += 1; });
    };
    std::thread thread(adds);
    adds();
    thread.join();
    CHECK(pool.read(counter).value == before + 600);
}

static void maps(holdfast::pool &pool)
{
    auto words = pool.map("words");
    words.put("tree", std::string(500, 'x'));
    pool.run([&](holdfast::tx &tx) {
        words.put(tx, "leaf", "2");
        words.put(tx, "root", "");
        CHECK(words.get(tx, "leaf") == "2");
        CHECK(words.scan(tx, "m", "s").size() == 1);
    });
    CHECK(words.get("tree") == std::string(500, 'x'));
    CHECK(words.get("none") == std::nullopt);
    CHECK(words.scan().size() == 3 && words.scan("s").front().first == "tree");
    CHECK(words.scan("m", "s").front().first == "root");
    CHECK(words.scan({}, {}, 1).front().first == "leaf" && words.scan({}, "").empty());
    CHECK(words.scan_back().front().first == "tree");
    CHECK(words.scan_back({}, "t", 1).front().first == "root");
    CHECK(words.remove("tree") && !words.remove("tree") && words.count() == 2);
    CHECK(words.info().kind == HOLDFAST_KIND_BTREE);
    CHECK(code_of([&] { pool.map("words", HOLDFAST_KIND_SKIPLIST); }) == HOLDFAST_WRONG_TYPE);
    CHECK(pool.existing_map("words").count() == 2);
    CHECK(code_of([&] { pool.existing_map("none"); }) == HOLDFAST_NOT_FOUND);
    CHECK(pool.drop_map("words") && !pool.drop_map("words"));
    CHECK(code_of([&] { words.get("leaf"); }) == HOLDFAST_DANGLING);
}

static void numbers(holdfast::pool &pool, holdfast_kind kind)
{
    using holdfast::bytes;
    auto squares = pool.map(holdfast_kind_name(kind), kind, HOLDFAST_CONTENT_I64,
                            HOLDFAST_CONTENT_U64);
    for (std::int64_t i = -40; i <= 40; i++)
        squares.put(bytes(i), bytes(static_cast<std::uint64_t>(i * i)));
    CHECK(code_of([&] { squares.put("7", "49"); }) == HOLDFAST_INVALID);

    auto cursor = squares.cursor();
    std::uint64_t sum = 0, steps = 0;
    while (auto entry = cursor.next()) {
        const auto key = holdfast::value_of<std::int64_t>(entry->first);
        sum += holdfast::value_of<std::uint64_t>(entry->second);
        steps++;
        /* The map changes under the cursor. */
        CHECK(squares.remove(bytes(key)));
    }
    CHECK(steps == 81 && sum == 2 * 22140 && squares.count() == 0);
    cursor.rewind();
    squares.put(bytes(std::int64_t{3}), bytes(std::uint64_t{9}));
    pool.run([&](holdfast::tx &tx) {
        cursor.rewind();
        CHECK(cursor.next(tx)->second == bytes(std::uint64_t{9}) && !cursor.next(tx));
    });
    bool thrown = false;
    try {
        holdfast::value_of<std::uint32_t>("short");
    } catch (const std::length_error &) {
        thrown = true;
    }
    CHECK(thrown);
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    auto options = holdfast::options();
    options.size = 16 << 20;
    auto pool = holdfast::pool::create(arguments[1], options);
    objects(pool);
    elsewhere(pool);
    lengths(pool);
    together(pool);
    maps(pool);
    for (int kind = HOLDFAST_KIND_HASHMAP; kind <= HOLDFAST_KIND_RTREE; kind++)
        numbers(pool, static_cast<holdfast_kind>(kind));
    CHECK(pool.scrub().found == 0);
    {
        auto tx = pool.begin();
        CHECK(code_of([&] { pool.close(); }) == HOLDFAST_BUSY);
    }
    pool.close();
    CHECK(code_of([] { holdfast::pool::open("no such file"); }) == HOLDFAST_NOT_FOUND);
    auto again = holdfast::pool::open_read_only(arguments[1]);
    CHECK(again.info().read_only == 1);
    CHECK(code_of([&] { again.run([](holdfast::tx &tx) { tx.make(other{1, 2}); }); }) ==
          HOLDFAST_READ_ONLY);
    return 0;
}
