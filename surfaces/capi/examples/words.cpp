/* A durable map and a linked list, in C++.
 *
 *     c++ -std=c++17 words.cpp $(pkg-config --cflags --libs holdfast) && ./a.out words.pool
 */
#include <holdfast.hpp>

#include <cstdio>
#include <string>

struct entry {
    std::uint64_t number;
    holdfast::ptr<entry> next;
};
HOLDFAST_TYPE(entry, 1);

int main(int count, char **arguments)
try {
    auto pool = holdfast::pool::create(count > 1 ? arguments[1] : "words.pool", holdfast::options());
    auto words = pool.map("words", HOLDFAST_KIND_BTREE, HOLDFAST_CONTENT_TEXT);
    words.put("hello", "world");

    for (std::uint64_t number = 1; number <= 3; number++) {
        pool.run([&](holdfast::tx &tx) {
            tx.set_root(tx.make(entry{number, tx.root<entry>()}));
            words.put(tx, "last", std::to_string(number));
        });
    }

    std::uint64_t sum = 0;
    for (auto at = pool.root<entry>(); at;) {
        auto entry = pool.look(at); // a plain load, in place
        sum += entry->number;
        at = entry->next;
    }
    for (const auto &[word, value] : words.scan())
        std::printf("%s: %s\n", word.c_str(), value.c_str());
    return sum == 6 && words.get("last") == "3" ? 0 : 1;
} catch (const holdfast::error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
