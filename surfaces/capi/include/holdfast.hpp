/* Holdfast for C++17: handles that give themselves back, transactions as functions, typed
 * pointers. Errors are thrown as holdfast::error.
 *
 *     struct account { std::int64_t balance; holdfast::ptr<account> next; };
 *     HOLDFAST_TYPE(account, 1);
 *
 *     auto pool = holdfast::pool::open("bank.pool");
 *     pool.run([&](holdfast::tx &tx) {
 *         account &a = *tx.open(tx.root<account>());
 *         a.balance += 10;                       // a verified private copy
 *         a.next = tx.make(account{});
 *     });                                        // durable, or untouched
 */
#ifndef HOLDFAST_HPP
#define HOLDFAST_HPP

#include "holdfast.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace holdfast {

/* A call that failed: its code, and the text of the library. */
class error : public std::runtime_error {
public:
    explicit error(holdfast_code code) : std::runtime_error(holdfast_message()), code_(code) {}
    holdfast_code code() const noexcept { return code_; }

private:
    holdfast_code code_;
};

/* Thrown inside of pool::run to have the work done again. Let it pass. */
class again : public error {
public:
    again() : error(HOLDFAST_AGAIN) {}
};

inline void check(holdfast_code code)
{
    if (code == HOLDFAST_AGAIN)
        throw again();
    if (code != HOLDFAST_OK)
        throw error(code);
}

/* Name and version of a type, by HOLDFAST_TYPE. */
template <typename T> struct type_of;

#define HOLDFAST_TYPE(TYPE, VERSION)                                                               \
    template <> struct holdfast::type_of<TYPE> {                                                   \
        static std::uint32_t number()                                                              \
        {                                                                                          \
            static const std::uint32_t found = holdfast_type("c++." #TYPE, VERSION);               \
            return found;                                                                          \
        }                                                                                          \
    }

/* A pointer to a T in a pool. Plain data: it may be stored in objects. */
template <typename T> struct ptr {
    holdfast_ptr raw;

    explicit operator bool() const noexcept { return raw != 0; }
    friend bool operator==(ptr a, ptr b) noexcept { return a.raw == b.raw; }
    friend bool operator!=(ptr a, ptr b) noexcept { return a.raw != b.raw; }
};

/* What can be an object: bytes that mean the same in every process. */
template <typename T> constexpr void expect_plain()
{
    static_assert(std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>,
                  "objects of a pool are plain data");
    static_assert(!std::is_pointer_v<T>, "addresses mean nothing in a pool: use holdfast::ptr");
    static_assert(alignof(T) <= 64, "objects are aligned to 64 bytes");
}

class pool;
class map;

/* A transaction under way: aborted when it goes, unless it was committed. Stays on its thread. */
class tx {
public:
    tx(tx &&other) noexcept : handle_(std::exchange(other.handle_, holdfast_tx{0})),
                              owns_(std::exchange(other.owns_, false)) {}
    tx(const tx &) = delete;
    tx &operator=(const tx &) = delete;
    tx &operator=(tx &&) = delete;
    ~tx()
    {
        if (owns_)
            holdfast_tx_abort(handle_);
    }

    /* True if it is durable; false if it started over and its work is to be done again. */
    bool commit()
    {
        const holdfast_code code = holdfast_tx_commit(handle_);
        if (code == HOLDFAST_AGAIN)
            return false;
        /* One that could not end here and now is still to be aborted; for one that has ended, that
         * does nothing. */
        check(code);
        owns_ = false;
        return true;
    }

    /* Allocates an object and gives it a value. */
    template <typename T> ptr<T> make(const T &value)
    {
        expect_plain<T>();
        ptr<T> made{0};
        void *address = nullptr;
        check(holdfast_tx_alloc(handle_, sizeof(T), type_of<T>::number(), &made.raw, &address));
        std::memcpy(address, &value, sizeof(T));
        return made;
    }

    /* The verified private copy of an object, to be changed. Valid until the transaction ends or
     * starts over. */
    template <typename T> T *open(ptr<T> of)
    {
        expect_plain<T>();
        void *address = nullptr;
        std::uint64_t len = 0;
        check(holdfast_tx_open(handle_, of.raw, type_of<T>::number(), &address, &len));
        if (len != sizeof(T))
            throw std::length_error("the object has another length than its type");
        return static_cast<T *>(address);
    }

    /* A copy of an object as the transaction sees it. */
    template <typename T> T read(ptr<T> of)
    {
        expect_plain<T>();
        std::uint64_t len = 0;
        std::uint32_t found = 0;
        check(holdfast_tx_stat(handle_, of.raw, &len, &found));
        if (found != type_of<T>::number())
            throw std::invalid_argument("the object is of another type");
        if (len != sizeof(T))
            throw std::length_error("the object has another length than its type");
        T value;
        check(holdfast_tx_read(handle_, of.raw, 0, &value, sizeof value));
        return value;
    }

    template <typename T> void free(ptr<T> of) { check(holdfast_tx_free(handle_, of.raw)); }

    /* The pool's root object; its type is looked at when it is used. */
    template <typename T> ptr<T> root()
    {
        ptr<T> found{0};
        check(holdfast_tx_root(handle_, &found.raw));
        return found;
    }

    template <typename T> void set_root(ptr<T> of) { check(holdfast_tx_set_root(handle_, of.raw)); }

    holdfast_tx handle() const noexcept { return handle_; }

private:
    friend class pool;
    tx(holdfast_tx handle, bool owns) noexcept : handle_(handle), owns_(owns) {}

    holdfast_tx handle_;
    bool owns_;
};

/* An object in place: plain loads. While it lives, commits that would change the object wait. */
template <typename T> class view {
public:
    view(view &&other) noexcept : handle_(std::exchange(other.handle_, holdfast_view{0})),
                                  object_(std::exchange(other.object_, nullptr)) {}
    view(const view &) = delete;
    view &operator=(const view &) = delete;
    view &operator=(view &&) = delete;
    ~view()
    {
        if (handle_.id != 0)
            holdfast_view_end(handle_);
    }
    const T &operator*() const noexcept { return *object_; }
    const T *operator->() const noexcept { return object_; }

private:
    friend class pool;
    view(holdfast_pool pool, ptr<T> of) : handle_{0}, object_(nullptr)
    {
        expect_plain<T>();
        const void *address = nullptr;
        std::uint64_t len = 0;
        check(holdfast_view_begin(pool, of.raw, type_of<T>::number(), &handle_, &address, &len));
        if (len != sizeof(T)) {
            holdfast_view_end(handle_);
            throw std::length_error("the object has another length than its type");
        }
        object_ = static_cast<const T *>(address);
    }

    holdfast_view handle_;
    const T *object_;
};

/* The bytes of a number or another plain value, as keys and values of maps are handed over. They
 * are those of `value` itself, which has to outlive them. */
template <typename T> std::string_view bytes(const T &value) noexcept
{
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>, "plain data");
    return {reinterpret_cast<const char *>(&value), sizeof value};
}

/* The value whose bytes those are. */
template <typename T> T value_of(std::string_view bytes)
{
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>, "plain data");
    if (bytes.size() != sizeof(T))
        throw std::length_error("these bytes are no value of the type");
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
}

/* A key and its value. */
using entry = std::pair<std::string, std::string>;

/* A place in a map. It may be held while the map changes. */
class cursor {
public:
    cursor(cursor &&other) noexcept : handle_(std::exchange(other.handle_, holdfast_cursor{0})) {}
    cursor(const cursor &) = delete;
    cursor &operator=(const cursor &) = delete;
    cursor &operator=(cursor &&) = delete;
    ~cursor()
    {
        if (handle_.id != 0)
            holdfast_cursor_close(handle_);
    }

    /* Steps over the next entry; nothing once there is no more. */
    std::optional<entry> next() { return next(holdfast_tx{0}); }
    std::optional<entry> next(tx &tx) { return next(tx.handle()); }
    void rewind() { check(holdfast_cursor_rewind(handle_)); }

private:
    friend class map;
    explicit cursor(holdfast_map map) : handle_{0} { check(holdfast_cursor_open(map, &handle_)); }

    std::optional<entry> next(holdfast_tx tx)
    {
        entry found(std::string(64, '\0'), std::string(64, '\0'));
        auto &[key, value] = found;
        for (;;) {
            std::size_t key_len = 0, value_len = 0;
            const holdfast_code code =
                holdfast_cursor_next(handle_, tx, key.data(), key.size(), &key_len, value.data(),
                                     value.size(), &value_len);
            if (code == HOLDFAST_NOT_FOUND)
                return std::nullopt;
            if (code != HOLDFAST_ROOM)
                check(code);
            key.resize(key_len);
            value.resize(value_len);
            if (code == HOLDFAST_OK)
                return found;
        }
    }

    holdfast_cursor handle_;
};

/* A map of one of six kinds. Without a transaction, each call is one of its own. Keys and values
 * are bytes, also where the map takes numbers: see `bytes` and `value_of`. */
class map {
public:
    map(map &&other) noexcept : handle_(std::exchange(other.handle_, holdfast_map{0})) {}
    map(const map &) = delete;
    map &operator=(const map &) = delete;
    map &operator=(map &&) = delete;
    ~map()
    {
        if (handle_.id != 0)
            holdfast_map_close(handle_);
    }

    void put(std::string_view key, std::string_view value) { put(none(), key, value); }
    void put(tx &tx, std::string_view key, std::string_view value) { put(tx.handle(), key, value); }
    std::optional<std::string> get(std::string_view key) { return get(none(), key); }
    std::optional<std::string> get(tx &tx, std::string_view key) { return get(tx.handle(), key); }
    bool remove(std::string_view key) { return remove(none(), key); }
    bool remove(tx &tx, std::string_view key) { return remove(tx.handle(), key); }

    /* Up to `limit` entries with keys from `first` on and before `end`, in order; `{}` is no bound.
     * A hash map has no order and takes no bounds. */
    std::vector<entry> scan(std::string_view first = {}, std::string_view end = {},
                            std::size_t limit = static_cast<std::size_t>(-1))
    {
        return scan(holdfast_map_scan, none(), first, end, limit);
    }
    std::vector<entry> scan(tx &tx, std::string_view first = {}, std::string_view end = {},
                            std::size_t limit = static_cast<std::size_t>(-1))
    {
        return scan(holdfast_map_scan, tx.handle(), first, end, limit);
    }

    /* The same from the end back. */
    std::vector<entry> scan_back(std::string_view first = {}, std::string_view end = {},
                                 std::size_t limit = static_cast<std::size_t>(-1))
    {
        return scan(holdfast_map_scan_back, none(), first, end, limit);
    }

    /* Before the first entry; to go through a map that changes meanwhile, or is large. */
    holdfast::cursor cursor() { return holdfast::cursor(handle_); }

    std::uint64_t count()
    {
        std::uint64_t found = 0;
        check(holdfast_map_count(handle_, none(), &found));
        return found;
    }

    /* What it was created as. */
    holdfast_map_info info() const
    {
        holdfast_map_info info{};
        check(holdfast_map_describe(handle_, &info, sizeof info));
        return info;
    }

private:
    friend class pool;
    using scanner = decltype(&holdfast_map_scan);
    explicit map(holdfast_map handle) noexcept : handle_(handle) {}

    struct collected {
        std::vector<entry> entries;
        std::exception_ptr thrown;
    };

    static holdfast_tx none() noexcept { return holdfast_tx{0}; }

    static int collect(const void *key, std::size_t key_len, const void *value,
                       std::size_t value_len, void *argument) noexcept
    {
        auto *found = static_cast<collected *>(argument);
        try {
            found->entries.emplace_back(std::string(static_cast<const char *>(key), key_len),
                                        std::string(static_cast<const char *>(value), value_len));
            return 0;
        } catch (...) {
            found->thrown = std::current_exception();
            return 1;
        }
    }

    std::vector<entry> scan(scanner scan, holdfast_tx tx, std::string_view first,
                            std::string_view end, std::size_t limit)
    {
        collected found;
        check(scan(handle_, tx, first.data(), first.size(), end.data(), end.size(), limit, collect,
                   &found));
        if (found.thrown)
            std::rethrow_exception(found.thrown);
        return std::move(found.entries);
    }

    void put(holdfast_tx tx, std::string_view key, std::string_view value)
    {
        check(holdfast_map_put(handle_, tx, key.data(), key.size(), value.data(), value.size()));
    }

    std::optional<std::string> get(holdfast_tx tx, std::string_view key)
    {
        std::string value(64, '\0');
        for (;;) {
            std::size_t len = 0;
            const holdfast_code code = holdfast_map_get(handle_, tx, key.data(), key.size(),
                                                        value.data(), value.size(), &len);
            if (code == HOLDFAST_NOT_FOUND)
                return std::nullopt;
            if (code != HOLDFAST_ROOM)
                check(code);
            value.resize(len);
            if (code == HOLDFAST_OK)
                return value;
        }
    }

    bool remove(holdfast_tx tx, std::string_view key)
    {
        const holdfast_code code = holdfast_map_remove(handle_, tx, key.data(), key.size());
        if (code == HOLDFAST_NOT_FOUND)
            return false;
        check(code);
        return true;
    }

    holdfast_map handle_;
};

/* Options with their defaults; change some before use. */
inline holdfast_options options()
{
    holdfast_options options;
    check(holdfast_options_init(&options, sizeof options));
    return options;
}

/* An open pool, closed when it goes. Its transactions, views and maps must go first. */
class pool {
public:
    static pool create(const std::string &path, const holdfast_options &options)
    {
        return pool(holdfast_pool_create, path, &options);
    }
    static pool open(const std::string &path) { return pool(holdfast_pool_open, path, nullptr); }
    static pool open_read_only(const std::string &path)
    {
        return pool(holdfast_pool_open_read_only, path, nullptr);
    }

    pool(pool &&other) noexcept : handle_(std::exchange(other.handle_, holdfast_pool{0})) {}
    pool(const pool &) = delete;
    pool &operator=(const pool &) = delete;
    pool &operator=(pool &&) = delete;
    ~pool()
    {
        if (handle_.id != 0)
            holdfast_pool_close(handle_);
    }

    /* Closes the pool and tells if that could not be. */
    void close()
    {
        check(holdfast_pool_close(handle_));
        handle_ = holdfast_pool{0};
    }

    /* Runs `work` as one transaction, again if need be; an exception aborts and passes. */
    template <typename Work> void run(Work &&work)
    {
        running<Work> state{&work, nullptr};
        const holdfast_code code = holdfast_run(handle_, trampoline<Work>, &state);
        if (code != HOLDFAST_OK && state.thrown)
            std::rethrow_exception(state.thrown);
        check(code);
    }

    /* Begins a transaction; where a function will do, run is simpler. */
    tx begin()
    {
        holdfast_tx handle{0};
        check(holdfast_tx_begin(handle_, &handle));
        return tx(handle, true);
    }

    template <typename T> T read(ptr<T> of) { return *look(of); }
    template <typename T> view<T> look(ptr<T> of) { return view<T>(handle_, of); }

    template <typename T> ptr<T> root()
    {
        ptr<T> found{0};
        check(holdfast_root(handle_, &found.raw));
        return found;
    }

    /* The map called `name`; created if there is none. */
    holdfast::map map(const std::string &name, holdfast_kind kind = HOLDFAST_KIND_BTREE,
                      holdfast_content keys = HOLDFAST_CONTENT_BYTES,
                      holdfast_content values = HOLDFAST_CONTENT_BYTES)
    {
        holdfast_map handle{0};
        check(holdfast_map_create(handle_, name.c_str(), kind, keys, values, &handle));
        return holdfast::map(handle);
    }

    /* The map called `name`, of which nothing has to be known but that it is there. */
    holdfast::map existing_map(const std::string &name)
    {
        holdfast_map handle{0};
        check(holdfast_map_open(handle_, name.c_str(), &handle));
        return holdfast::map(handle);
    }

    /* Removes a map with everything in it; whether there was one. */
    bool drop_map(const std::string &name)
    {
        const holdfast_code code = holdfast_map_drop(handle_, name.c_str());
        if (code == HOLDFAST_NOT_FOUND)
            return false;
        check(code);
        return true;
    }

    holdfast_info info() const
    {
        holdfast_info info{};
        check(holdfast_pool_info(handle_, &info, sizeof info));
        return info;
    }

    holdfast_report scrub()
    {
        holdfast_report report{};
        check(holdfast_scrub(handle_, 0, 0, nullptr, nullptr, &report, sizeof report));
        return report;
    }

    holdfast_pool handle() const noexcept { return handle_; }

private:
    using opener = holdfast_code (*)(const char *, const holdfast_options *, holdfast_pool *);

    pool(opener open, const std::string &path, const holdfast_options *options) : handle_{0}
    {
        check(open(path.c_str(), options, &handle_));
    }

    template <typename Work> struct running {
        std::remove_reference_t<Work> *work;
        std::exception_ptr thrown;
    };

    template <typename Work> static int trampoline(holdfast_tx handle, void *argument) noexcept
    {
        auto *state = static_cast<running<Work> *>(argument);
        state->thrown = nullptr;
        try {
            tx tx(handle, false);
            (*state->work)(tx);
            return 0;
        } catch (...) {
            state->thrown = std::current_exception();
            return 1;
        }
    }

    holdfast_pool handle_;
};

} // namespace holdfast

#endif
