/* Holdfast for C: durable, self-checking pools in memory-mapped files.
 *
 * Made by cargo xtask capi --write from surfaces/capi/src; do not edit.
 *
 * Each call that can fail returns a holdfast_code; holdfast_message tells the text of the
 * thread's last error. Handles are numbers that are looked up: one that was given back or made up
 * is an error, never a crash. A transaction belongs to the thread that began it. A read that
 * fails leaves it as it was, unless the code is HOLDFAST_AGAIN; after a change that failed it can
 * only be aborted, and a commit tells why. See examples/ for whole programs.
 */

#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stddef.h>
#include <stdint.h>

/**
 * How a call ended. The text is in holdfast_message.
 */
typedef enum {
    /**
     * It was done.
     */
    HOLDFAST_OK = 0,
    /**
     * Another transaction came between, or damage was repaired: nothing was committed. Commit
     * starts the transaction over; do its work again.
     */
    HOLDFAST_AGAIN = 1,
    /**
     * There is no such file, map or key.
     */
    HOLDFAST_NOT_FOUND = 2,
    /**
     * There is one already.
     */
    HOLDFAST_EXISTS = 3,
    /**
     * The path names no regular file.
     */
    HOLDFAST_NOT_A_FILE = 4,
    /**
     * The file is no pool.
     */
    HOLDFAST_NOT_A_POOL = 5,
    /**
     * A newer build wrote the pool.
     */
    HOLDFAST_NEWER_VERSION = 6,
    /**
     * The file is shorter than the pool in it.
     */
    HOLDFAST_TRUNCATED = 7,
    /**
     * Somebody else writes to the pool, or scrubs it.
     */
    HOLDFAST_LOCKED = 8,
    /**
     * The pool can only be read.
     */
    HOLDFAST_READ_ONLY = 9,
    /**
     * The system forbids it.
     */
    HOLDFAST_PERMISSION = 10,
    /**
     * No space, on the file system or in the pool.
     */
    HOLDFAST_NO_SPACE = 11,
    /**
     * Damage beyond the redundancy.
     */
    HOLDFAST_DAMAGED = 12,
    /**
     * An argument makes no sense: null, misaligned, too long, an unknown value.
     */
    HOLDFAST_INVALID = 13,
    /**
     * The object or map is of another type.
     */
    HOLDFAST_WRONG_TYPE = 14,
    /**
     * The program decided not to commit.
     */
    HOLDFAST_CANCELLED = 15,
    /**
     * The transaction did something that is not allowed.
     */
    HOLDFAST_REFUSED = 16,
    /**
     * A system call failed.
     */
    HOLDFAST_SYSTEM = 17,
    /**
     * The handle is null, was given back, or is of another sort.
     */
    HOLDFAST_HANDLE = 18,
    /**
     * The transaction belongs to another thread.
     */
    HOLDFAST_THREAD = 19,
    /**
     * Not now: something that is under way has to end first.
     */
    HOLDFAST_BUSY = 20,
    /**
     * The pointer names no object: null, freed, or of another pool. Where a lost write leaves that
     * in doubt, it is HOLDFAST_DAMAGED.
     */
    HOLDFAST_DANGLING = 21,
    /**
     * A range ends beyond the object.
     */
    HOLDFAST_BOUNDS = 22,
    /**
     * The program wrote beyond its copy of an object; nothing was committed.
     */
    HOLDFAST_OVERRUN = 23,
    /**
     * The room for the answer is too small; the length needed was told.
     */
    HOLDFAST_ROOM = 24,
    /**
     * An error inside Holdfast was stopped at the border. Please report it.
     */
    HOLDFAST_PANIC = 25,
} holdfast_code;

/**
 * What protects the objects of a pool.
 */
typedef enum {
    /**
     * Nothing: damage is found, not repaired.
     */
    HOLDFAST_PARITY_NONE = 0,
    /**
     * Any one lost page of a column is rebuilt.
     */
    HOLDFAST_PARITY_P = 1,
    /**
     * Any two are.
     */
    HOLDFAST_PARITY_PQ = 2,
} holdfast_parity;

/**
 * When reads verify. Opening an object for change always does.
 */
typedef enum {
    /**
     * Never: the scrub finds damage.
     */
    HOLDFAST_VERIFY_NEVER = 0,
    /**
     * Once after the pool was opened.
     */
    HOLDFAST_VERIFY_FIRST_TOUCH = 1,
    /**
     * Each time.
     */
    HOLDFAST_VERIFY_ALWAYS = 2,
} holdfast_verify;

/**
 * Which structure a map is kept in; docs/collections.md says which to choose.
 */
typedef enum {
    /**
     * A hash table that grows step by step: fewest reads, no order.
     */
    HOLDFAST_KIND_HASHMAP = 0,
    /**
     * A B-tree: in order of keys, few levels whatever the keys are.
     */
    HOLDFAST_KIND_BTREE = 1,
    /**
     * A red-black tree: in order of keys, small inner nodes.
     */
    HOLDFAST_KIND_RBTREE = 2,
    /**
     * A crit-bit tree: in order of keys, for long keys that start the same.
     */
    HOLDFAST_KIND_CTREE = 3,
    /**
     * A skip list: in order of keys, for long walks.
     */
    HOLDFAST_KIND_SKIPLIST = 4,
    /**
     * A radix tree: in order of keys, lookups nearly as cheap as in a hash table.
     */
    HOLDFAST_KIND_RTREE = 5,
} holdfast_kind;

/**
 * What keys or values are.
 */
typedef enum {
    /**
     * Any bytes.
     */
    HOLDFAST_CONTENT_BYTES = 0,
    /**
     * UTF-8, without a zero at its end.
     */
    HOLDFAST_CONTENT_TEXT = 1,
    /**
     * A uint64_t; as keys in order of numbers.
     */
    HOLDFAST_CONTENT_U64 = 2,
    /**
     * An int64_t; as keys in order of numbers.
     */
    HOLDFAST_CONTENT_I64 = 3,
} holdfast_content;

/**
 * An open pool. {0} is none. Any thread may use it.
 */
typedef struct {
    /**
     * Not for the program.
     */
    uint64_t id;
} holdfast_pool;

/**
 * A detection or repair. Newer builds may add fields at the end.
 */
typedef struct {
    /**
     * Number of the event, rising by 1.
     */
    uint64_t sequence;
    /**
     * When, in nanoseconds since 1970.
     */
    uint64_t time_ns;
    /**
     * Where in the pool.
     */
    uint64_t at;
    /**
     * How many bytes.
     */
    uint64_t len;
    /**
     * The object concerned, 0 if none is known.
     */
    uint64_t object;
    /**
     * How long the repair took.
     */
    uint64_t duration_ns;
    /**
     * How it was found: 1 media error, 2 listed as bad, 3 sum, 4 parity, 5 copies differ,
     * 6 impossible entry.
     */
    uint32_t cause;
    /**
     * Who found it: 1 read, 2 open for change, 3 commit, 4 scrub, 5 open of the pool, 6 check,
     * 7 repair, 8 load.
     */
    uint32_t finder;
    /**
     * What came of it: 1 detected, 2 repaired, 3 relocated, 4 lost, 5 undecided.
     */
    uint32_t outcome;
    /**
     * CRC-32C of the bytes before, 0 if unreadable.
     */
    uint32_t before_sum;
    /**
     * CRC-32C of the bytes after.
     */
    uint32_t after_sum;
    /**
     * 0.
     */
    uint32_t reserved;
} holdfast_event;

/**
 * A function called for each event; anything but 0 ends it.
 */
typedef int (*holdfast_on_event)(const holdfast_event *event, void *argument);

/**
 * A map of a pool. {0} is none. Any thread may use it.
 */
typedef struct {
    /**
     * Not for the program.
     */
    uint64_t id;
} holdfast_map;

/**
 * What a map was created as.
 */
typedef struct {
    /**
     * Its structure, a holdfast_kind.
     */
    uint32_t kind;
    /**
     * What its keys are, a holdfast_content.
     */
    uint32_t keys;
    /**
     * What its values are, a holdfast_content.
     */
    uint32_t values;
    /**
     * 0.
     */
    uint32_t reserved;
} holdfast_map_info;

/**
 * A transaction under way. {0} is none. Only the thread that began it may use it; when that
 * ends, it is aborted.
 */
typedef struct {
    /**
     * Not for the program.
     */
    uint64_t id;
} holdfast_tx;

/**
 * A pointer into a pool: 48 bits of offset, 16 of generation. 0 names nothing. Plain data: it
 * may be stored in objects, and names the same object as long as the pool lives.
 */
typedef uint64_t holdfast_ptr;

/**
 * How a pool is made and opened. Set all with holdfast_options_init first, then change some.
 */
typedef struct {
    /**
     * Bytes of this struct as the program knows it; set by holdfast_options_init.
     */
    uint64_t struct_size;
    /**
     * Bytes of a new pool, all its parts included.
     */
    uint64_t size;
    /**
     * Parity of a new pool, a holdfast_parity.
     */
    uint32_t parity;
    /**
     * When reads verify, a holdfast_verify.
     */
    uint32_t verify;
    /**
     * 1 if changes outside of added ranges are to be refused: for finding errors in programs.
     */
    uint32_t check_ranges;
    /**
     * 1 if faults may be injected into a new pool on purpose.
     */
    uint32_t allow_inject;
    /**
     * Bytes of a frame of a new pool, the largest contiguous loss it survives; 0 is 2 MiB.
     */
    uint64_t frame;
    /**
     * Bytes of a heap chunk of a new pool; 0 chooses by size.
     */
    uint64_t chunk;
    /**
     * Transactions that can run at once in a new pool; 0 chooses.
     */
    uint32_t lanes;
    /**
     * 0.
     */
    uint32_t reserved;
} holdfast_options;

/**
 * What a pool is and how it is doing. Newer builds may add fields at the end.
 */
typedef struct {
    /**
     * Bytes of the pool.
     */
    uint64_t size;
    /**
     * Bytes that hold objects.
     */
    uint64_t used;
    /**
     * Bytes of objects as asked for.
     */
    uint64_t object_bytes;
    /**
     * Live objects.
     */
    uint64_t objects;
    /**
     * Bytes of the largest object that fits now.
     */
    uint64_t largest;
    /**
     * Transactions that changed something since the pool was opened.
     */
    uint64_t commits;
    /**
     * Times a transaction was done again because of another.
     */
    uint64_t conflicts;
    /**
     * Damages found since the pool was opened.
     */
    uint64_t detected;
    /**
     * Damages repaired.
     */
    uint64_t repaired;
    /**
     * Damages beyond the redundancy.
     */
    uint64_t lost;
    /**
     * Parity, a holdfast_parity.
     */
    uint32_t parity;
    /**
     * What lies behind: 1 direct access, 2 an ordinary file, 3 shared memory.
     */
    uint32_t medium;
    /**
     * 1 if commits survive a power cut, 0 if they survive a crash of the process only.
     */
    uint32_t survives_power_cut;
    /**
     * 1 if changes are refused.
     */
    uint32_t read_only;
    /**
     * 1 if the pool had been closed when it was opened, 0 if it was recovered.
     */
    uint32_t was_clean;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * Transactions that were given up since the pool was opened.
     */
    uint64_t aborts;
    /**
     * Granules of up to 1024 bytes that reads verified since the pool was opened.
     */
    uint64_t granules_verified;
    /**
     * Times the log was reclaimed since the pool was opened.
     */
    uint64_t log_reclaims;
} holdfast_info;

/**
 * An object borrowed in place. {0} is none. Any thread may give it back.
 */
typedef struct {
    /**
     * Not for the program.
     */
    uint64_t id;
} holdfast_view;

/**
 * A function that is told how far a pass is, in bytes. A scrub that gets anything but 0 is
 * cancelled; a check goes on.
 */
typedef int (*holdfast_progress)(uint64_t done, uint64_t all, void *argument);

/**
 * What a pass over a pool came to.
 */
typedef struct {
    /**
     * Objects looked at.
     */
    uint64_t objects;
    /**
     * Bytes of objects looked at.
     */
    uint64_t object_bytes;
    /**
     * Bytes of columns looked at.
     */
    uint64_t column_bytes;
    /**
     * Damages found.
     */
    uint64_t found;
    /**
     * Damages repaired; 0 of a check.
     */
    uint64_t repaired;
    /**
     * Damages beyond the redundancy; 0 of a check.
     */
    uint64_t lost;
    /**
     * Verdicts that could not be reached.
     */
    uint64_t undecided;
    /**
     * 1 if the pass was stopped before its end.
     */
    uint64_t stopped;
} holdfast_report;

/**
 * A function that does the work of a transaction, and may be called again for the same. It
 * returns 0 to commit; anything else aborts, or repeats if a call answered HOLDFAST_AGAIN. It
 * must not end the transaction itself, throw an exception or jump out.
 */
typedef int (*holdfast_work)(holdfast_tx tx, void *argument);

/**
 * A function called for each entry; anything but 0 ends the scan. It may read in the transaction
 * of the scan, if there is one, and not change. Key and value are valid while it runs.
 */
typedef int (*holdfast_visit)(const void *key,
                              size_t key_len,
                              const void *value,
                              size_t value_len,
                              void *argument);

/**
 * A place in a map, between two of its entries. {0} is none. One thread at a time may use it.
 */
typedef struct {
    /**
     * Not for the program.
     */
    uint64_t id;
} holdfast_cursor;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Text of the last call of this thread that failed: where, what, what to do. Empty if none did.
 * Valid until the next call of this thread that fails.
 */
const char *holdfast_message(void);

/**
 * Version of the library, such as "0.1.0".
 */
const char *holdfast_version(void);

/**
 * Calls each for the events in the pool's journal from number from on, oldest first. next
 * is told where to go on; it may be null. To follow a pool, call it now and then.
 *
 * The caller vouches:
 * each is null or can be called with argument, next is null or points to a uint64_t.
 */
holdfast_code holdfast_events(holdfast_pool pool,
                              uint64_t from,
                              holdfast_on_event each,
                              void *argument,
                              uint64_t *next);

/**
 * Writes an event as one line of text for people, cut off and ended by a zero within room.
 *
 * The caller vouches:
 * event is null or points to a holdfast_event, and size is its sizeof; into is null or
 * points to room bytes.
 */
holdfast_code holdfast_event_text(const holdfast_event *event,
                                  size_t size,
                                  char *into,
                                  size_t room);

/**
 * Name of a holdfast_kind, such as "btree"; null if it is none.
 */
const char *holdfast_kind_name(uint32_t kind);

/**
 * Tells the holdfast_kind that is called name: "hashmap", "btree", "rbtree", "ctree",
 * "skiplist" or "rtree".
 *
 * The caller vouches:
 * name is null or a text with a zero at its end, kind is null or points to a uint32_t.
 */
holdfast_code holdfast_kind_from_name(const char *name, uint32_t *kind);

/**
 * Opens the map called name; HOLDFAST_NOT_FOUND if there is none, HOLDFAST_WRONG_TYPE if
 * its keys or values are nothing that C has a holdfast_content for.
 *
 * The caller vouches:
 * name is null or a text with a zero at its end, map is null or points to a holdfast_map.
 */
holdfast_code holdfast_map_open(holdfast_pool pool, const char *name, holdfast_map *map);

/**
 * Opens the map called name; creates it if there is none, as a holdfast_kind with a
 * holdfast_content as keys and another as values. HOLDFAST_WRONG_TYPE if it was created as
 * something else.
 *
 * The caller vouches:
 * As holdfast_map_open.
 */
holdfast_code holdfast_map_create(holdfast_pool pool,
                                  const char *name,
                                  uint32_t kind,
                                  uint32_t keys,
                                  uint32_t values,
                                  holdfast_map *map);

/**
 * Tells what a map was created as.
 *
 * The caller vouches:
 * info is null or points to a holdfast_map_info; size is its sizeof.
 */
holdfast_code holdfast_map_describe(holdfast_map map, holdfast_map_info *info, size_t size);

/**
 * Removes the map called name from its pool, with everything in it, in one transaction.
 * HOLDFAST_NOT_FOUND if there is none. Handles and cursors of it find nothing any more.
 *
 * The caller vouches:
 * name is null or a text with a zero at its end.
 */
holdfast_code holdfast_map_drop(holdfast_pool pool, const char *name);

/**
 * Gives a map's handle back. The map stays in its pool.
 */
holdfast_code holdfast_map_close(holdfast_map map);

/**
 * Gives a key a value. With tx {0}, it is durable when this returns.
 *
 * The caller vouches:
 * key and value are null or point to as many bytes as said.
 */
holdfast_code holdfast_map_put(holdfast_map map,
                               holdfast_tx tx,
                               const void *key,
                               size_t key_len,
                               const void *value,
                               size_t value_len);

/**
 * Copies the value of a key into into. len is told the length of the value, also if room is
 * too small (HOLDFAST_ROOM). HOLDFAST_NOT_FOUND if there is no such key.
 *
 * The caller vouches:
 * key and into are null or point to as many bytes as said, len is null or points to a
 * size_t.
 */
holdfast_code holdfast_map_get(holdfast_map map,
                               holdfast_tx tx,
                               const void *key,
                               size_t key_len,
                               void *into,
                               size_t room,
                               size_t *len);

/**
 * Removes a key; HOLDFAST_NOT_FOUND if there is none, which is no error of the transaction.
 *
 * The caller vouches:
 * key is null or points to key_len bytes.
 */
holdfast_code holdfast_map_remove(holdfast_map map,
                                  holdfast_tx tx,
                                  const void *key,
                                  size_t key_len);

/**
 * Counts the entries of a map by reading all of it.
 *
 * The caller vouches:
 * count is null or points to a uint64_t.
 */
holdfast_code holdfast_map_count(holdfast_map map, holdfast_tx tx, uint64_t *count);

/**
 * Number of the type called name, in its version: what to give to holdfast_tx_alloc, so
 * that objects are not taken for what they are not. 0 if name is null or no text.
 *
 * The caller vouches:
 * name is null or a text with a zero at its end.
 */
uint32_t holdfast_type(const char *name, uint32_t version);

/**
 * Allocates an object of len zero bytes of a type (see holdfast_type; 0 is plain bytes). If
 * address is not null, the private copy is opened as by holdfast_tx_open.
 *
 * The caller vouches:
 * pointer is null or points to a holdfast_ptr, address is null or points to a void *.
 */
holdfast_code holdfast_tx_alloc(holdfast_tx tx,
                                uint64_t len,
                                uint32_t type_number,
                                holdfast_ptr *pointer,
                                void **address);

/**
 * Frees an object once the transaction commits. The address of its private copy is void.
 */
holdfast_code holdfast_tx_free(holdfast_tx tx, holdfast_ptr pointer);

/**
 * Opens an object for change: address is a private copy of all of it, verified, of the same
 * address as long as the transaction is under way. What is stored there is committed.
 * type_number 0 takes any type. len may be null.
 *
 * The caller vouches:
 * address is null or points to a void *, len is null or points to a uint64_t.
 */
holdfast_code holdfast_tx_open(holdfast_tx tx,
                               holdfast_ptr pointer,
                               uint32_t type_number,
                               void **address,
                               uint64_t *len);

/**
 * Opens an object for a change of len bytes from byte from on; address is where those are
 * in the private copy. The whole object is copied: for a small change of a large object,
 * holdfast_tx_write is faster. In a pool opened with check_ranges, a change outside of all
 * ranges added of an object is an error of the commit.
 *
 * The caller vouches:
 * address is null or points to a void *.
 */
holdfast_code holdfast_tx_add_range(holdfast_tx tx,
                                    holdfast_ptr pointer,
                                    uint64_t from,
                                    uint64_t len,
                                    void **address);

/**
 * Copies len bytes of an object, from byte from on, as the transaction sees them.
 *
 * The caller vouches:
 * into is null or points to len bytes.
 */
holdfast_code holdfast_tx_read(holdfast_tx tx,
                               holdfast_ptr pointer,
                               uint64_t from,
                               void *into,
                               size_t len);

/**
 * Changes len bytes of an object, from byte from on. Only the kilobytes concerned are copied.
 *
 * The caller vouches:
 * bytes is null or points to len bytes.
 */
holdfast_code holdfast_tx_write(holdfast_tx tx,
                                holdfast_ptr pointer,
                                uint64_t from,
                                const void *bytes,
                                size_t len);

/**
 * Tells length and type of an object. Either place may be null.
 *
 * The caller vouches:
 * len is null or points to a uint64_t, type_number is null or points to a uint32_t.
 */
holdfast_code holdfast_tx_stat(holdfast_tx tx,
                               holdfast_ptr pointer,
                               uint64_t *len,
                               uint32_t *type_number);

/**
 * Tells the pool's root object, 0 if none was set.
 *
 * The caller vouches:
 * pointer is null or points to a holdfast_ptr.
 */
holdfast_code holdfast_tx_root(holdfast_tx tx, holdfast_ptr *pointer);

/**
 * Makes an object the pool's root: where a program starts from. 0 unsets it.
 */
holdfast_code holdfast_tx_set_root(holdfast_tx tx, holdfast_ptr pointer);

/**
 * Sets all options to what is usual. 64 MiB, parity P, reads verified on first touch.
 *
 * The caller vouches:
 * options is null or points to a holdfast_options; size is its sizeof.
 */
holdfast_code holdfast_options_init(holdfast_options *options, size_t size);

/**
 * Creates the file path with a new, empty pool and opens it. A path is bytes up to a zero, in
 * whatever encoding the system's paths are. options may be null.
 *
 * The caller vouches:
 * path is null or a text with a zero at its end, options is null or was set by
 * holdfast_options_init, pool is null or points to a holdfast_pool.
 */
holdfast_code holdfast_pool_create(const char *path,
                                   const holdfast_options *options,
                                   holdfast_pool *pool);

/**
 * Opens the pool in the file path for reading and writing; recovers it first if it was not
 * closed. One process at a time. options may be null.
 *
 * The caller vouches:
 * As holdfast_pool_create.
 */
holdfast_code holdfast_pool_open(const char *path,
                                 const holdfast_options *options,
                                 holdfast_pool *pool);

/**
 * Opens the pool in the file path for reading: the file is never changed, and nobody can open
 * it for writing meanwhile. options may be null.
 *
 * The caller vouches:
 * As holdfast_pool_create.
 */
holdfast_code holdfast_pool_open_read_only(const char *path,
                                           const holdfast_options *options,
                                           holdfast_pool *pool);

/**
 * Closes a pool. Its maps are closed with it. HOLDFAST_BUSY while a transaction, a view or
 * another call uses it, on any thread, HOLDFAST_INVALID in a process that was forked after it
 * was opened: nothing happened then.
 */
holdfast_code holdfast_pool_close(holdfast_pool pool);

/**
 * Tells what a pool is and how it is doing. Reads the state of every object.
 *
 * The caller vouches:
 * info is null or points to a holdfast_info; size is its sizeof.
 */
holdfast_code holdfast_pool_info(holdfast_pool pool, holdfast_info *info, size_t size);

/**
 * Grows a pool to size bytes. Transactions go on meanwhile and no address changes.
 */
holdfast_code holdfast_pool_grow(holdfast_pool pool, uint64_t size);

/**
 * Copies len bytes of an object, from byte from on, as one committed state of it has them.
 *
 * The caller vouches:
 * into is null or points to len bytes.
 */
holdfast_code holdfast_read(holdfast_pool pool,
                            holdfast_ptr pointer,
                            uint64_t from,
                            void *into,
                            size_t len);

/**
 * Tells the pool's root object, 0 if none was set.
 *
 * The caller vouches:
 * pointer is null or points to a holdfast_ptr.
 */
holdfast_code holdfast_root(holdfast_pool pool, holdfast_ptr *pointer);

/**
 * Borrows an object in place: plain loads, no copy. Until holdfast_view_end, commits that would
 * change the object wait, so keep it short. Never store to it. type_number 0 takes any type;
 * len may be null. HOLDFAST_BUSY while there are 96 views of the object, or 127 of those
 * that the pool guards together with it.
 *
 * The caller vouches:
 * view is null or points to a holdfast_view, address is null or points to a const void *,
 * len is null or points to a uint64_t.
 */
holdfast_code holdfast_view_begin(holdfast_pool pool,
                                  holdfast_ptr pointer,
                                  uint32_t type_number,
                                  holdfast_view *view,
                                  const void **address,
                                  uint64_t *len);

/**
 * Gives a borrowed object back. Its address is void.
 */
holdfast_code holdfast_view_end(holdfast_view view);

/**
 * Checks every object, every column and every copy of metadata; changes nothing. Transactions of
 * other threads go on meanwhile. Damage found is told by the report, not by the code.
 *
 * The caller vouches:
 * progress is null or can be called with argument; report is null or points to a
 * holdfast_report and size is its sizeof.
 */
holdfast_code holdfast_check(holdfast_pool pool,
                             holdfast_progress progress,
                             void *argument,
                             holdfast_report *report,
                             size_t size);

/**
 * Checks the pool and repairs what it finds, at most rate bytes a second (0: as fast as it
 * can), from where an earlier pass stopped if resume is not 0; the report is that of the whole
 * pass. Transactions of other threads go on; only the column under repair waits.
 * HOLDFAST_LOCKED if a scrub of the pool is running.
 *
 * The caller vouches:
 * As holdfast_check.
 */
holdfast_code holdfast_scrub(holdfast_pool pool,
                             uint64_t rate,
                             int resume,
                             holdfast_progress progress,
                             void *argument,
                             holdfast_report *report,
                             size_t size);

/**
 * Repairs all damage there is: a whole scrub, as fast as it can. HOLDFAST_DAMAGED if something
 * is beyond the redundancy; the report is complete then too.
 *
 * The caller vouches:
 * As holdfast_check.
 */
holdfast_code holdfast_repair(holdfast_pool pool,
                              holdfast_progress progress,
                              void *argument,
                              holdfast_report *report,
                              size_t size);

/**
 * Pauses the scrub that runs, in this process or by itself, and returns once it has stopped; its
 * position is kept for resume. Called by the scrub's own function, it stops it at its next
 * step. HOLDFAST_NOT_FOUND if none runs.
 */
holdfast_code holdfast_scrub_pause(holdfast_pool pool);

/**
 * Cancels the scrub that runs, or gives up one that was paused; otherwise as
 * holdfast_scrub_pause.
 */
holdfast_code holdfast_scrub_cancel(holdfast_pool pool);

/**
 * Begins a transaction. A thread can have one at a time in a pool. End it by
 * holdfast_tx_commit or holdfast_tx_abort.
 *
 * The caller vouches:
 * tx is null or points to a holdfast_tx.
 */
holdfast_code holdfast_tx_begin(holdfast_pool pool, holdfast_tx *tx);

/**
 * Makes all changes of a transaction durable and ends it. HOLDFAST_AGAIN: another transaction
 * came between, or damage was found and repaired; nothing was committed, and the transaction has
 * started over under the same handle. Addresses it lent are void: do its work again and commit
 * again, or abort. After any other error it has ended, and nothing happened.
 */
holdfast_code holdfast_tx_commit(holdfast_tx tx);

/**
 * Ends a transaction; nothing it did happened.
 */
holdfast_code holdfast_tx_abort(holdfast_tx tx);

/**
 * Runs work as one transaction and returns once it is durable. work is called again after a
 * conflict or a repair. If it does not return 0, nothing happens, and the answer is the error of
 * the change that failed, else HOLDFAST_CANCELLED.
 *
 * The caller vouches:
 * work is null or can be called with argument.
 */
holdfast_code holdfast_run(holdfast_pool pool, holdfast_work work, void *argument);

/**
 * Calls visit for the entries of a map with keys from first on and before end, at most
 * limit of them, in order of keys. A null key is no bound; a hash map has no order, and takes
 * no bounds. With tx {0}, entries are collected in memory before, all of one committed state.
 *
 * The caller vouches:
 * first and end are null or point to as many bytes as said; visit is null or can be called
 * with argument.
 */
holdfast_code holdfast_map_scan(holdfast_map map,
                                holdfast_tx tx,
                                const void *first,
                                size_t first_len,
                                const void *end,
                                size_t end_len,
                                size_t limit,
                                holdfast_visit visit,
                                void *argument);

/**
 * The same from the last entry before end back to first. Not for hash maps.
 *
 * The caller vouches:
 * As holdfast_map_scan.
 */
holdfast_code holdfast_map_scan_back(holdfast_map map,
                                     holdfast_tx tx,
                                     const void *first,
                                     size_t first_len,
                                     const void *end,
                                     size_t end_len,
                                     size_t limit,
                                     holdfast_visit visit,
                                     void *argument);

/**
 * Places a cursor before the first entry of a map. It may be held while the map is changed, by
 * whomever and also in the middle of a transaction: it goes on behind the key it was at, and
 * meets each entry that is there all the time exactly once. Give it back by
 * holdfast_cursor_close.
 *
 * The caller vouches:
 * cursor is null or points to a holdfast_cursor.
 */
holdfast_code holdfast_cursor_open(holdfast_map map, holdfast_cursor *cursor);

/**
 * Steps over the next entry and copies its key and value; in order of keys unless the map is a
 * hash map. HOLDFAST_NOT_FOUND once there is no more. HOLDFAST_ROOM if either room is too
 * small: both lengths were told, and the cursor stays where it is. HOLDFAST_DANGLING if the map
 * was dropped. If the transaction starts over, the cursor does not: rewind it.
 *
 * The caller vouches:
 * key and value are null or point to as many bytes as said, key_len and value_len are
 * null or point to a size_t.
 */
holdfast_code holdfast_cursor_next(holdfast_cursor cursor,
                                   holdfast_tx tx,
                                   void *key,
                                   size_t key_room,
                                   size_t *key_len,
                                   void *value,
                                   size_t value_room,
                                   size_t *value_len);

/**
 * Puts a cursor before the first entry again.
 */
holdfast_code holdfast_cursor_rewind(holdfast_cursor cursor);

/**
 * Gives a cursor back.
 */
holdfast_code holdfast_cursor_close(holdfast_cursor cursor);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HOLDFAST_H */
