/*
 * The other side of the race: libpmemobj, driven as its manual says, behind a plain interface that
 * the benchmark loads at run time. Built by `cargo xtask bench object` against Debian's development
 * package, together with the six maps of that package's examples.
 *
 * Every function answers 0 if all went well.
 */

#include <libpmemobj.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "map.h"
#include "map_btree.h"
#include "map_ctree.h"
#include "map_hashmap_tx.h"
#include "map_rbtree.h"
#include "map_rtree.h"
#include "map_skiplist.h"

enum { TYPE_OBJECT = 1, TYPE_TABLE = 2, TYPE_VALUE = 3 };

/* Tables of one peer: one for each thread. */
enum { TABLES = 8 };

/* Objects allocated in one transaction when many are made. */
enum { BATCH = 64 };

/*
 * What objects hang from: an array of pointers in the pool. A program keeps its handles in ordinary
 * memory too, as the other side of the race does, so no pointer is read from the pool to be followed.
 * `line` holds those that are overwritten next, in their order: see peer_line_up.
 */
struct table {
	PMEMoid stored;
	PMEMoid *handles;
	PMEMoid *line;
};

struct peer {
	PMEMobjpool *pool;
	struct table tables[TABLES];
	PMEMoid root;
	struct map_ctx *maps;
	TOID(struct map) map;
};

/* `path` is a pool file or a pool set; `size` is 0 for a set, which says its own. */
struct peer *peer_create(const char *path, uint64_t size)
{
	struct peer *peer = calloc(1, sizeof(*peer));
	if (peer == NULL)
		return NULL;
	peer->pool = pmemobj_create(path, "bench", size, 0600);
	if (peer->pool == NULL) {
		free(peer);
		return NULL;
	}
	peer->root = pmemobj_root(peer->pool, sizeof(uint64_t));
	return peer;
}

const char *peer_error(void)
{
	return pmemobj_errormsg();
}

/*
 * Closes the pool and keeps the handles: each is the pool's number and an offset, and so is good again
 * after peer_open. The map is forgotten.
 */
void peer_rest(struct peer *peer)
{
	if (peer->maps != NULL)
		map_ctx_free(peer->maps);
	peer->maps = NULL;
	if (peer->pool != NULL)
		pmemobj_close(peer->pool);
	peer->pool = NULL;
}

/* Opens the pool that peer_rest has closed. */
int peer_open(struct peer *peer, const char *path)
{
	if (peer->pool != NULL)
		return -1;
	peer->pool = pmemobj_open(path, "bench");
	return peer->pool == NULL;
}

void peer_close(struct peer *peer)
{
	peer_rest(peer);
	for (int i = 0; i < TABLES; i++) {
		free(peer->tables[i].handles);
		free(peer->tables[i].line);
	}
	free(peer);
}

/* A table of `count` null pointers; the one that was there is forgotten. */
int peer_table(struct peer *peer, uint64_t number, uint64_t count)
{
	if (number >= TABLES)
		return -1;
	struct table *table = &peer->tables[number];
	free(table->handles);
	table->handles = calloc(count, sizeof(PMEMoid));
	if (table->handles == NULL)
		return -1;
	return pmemobj_zalloc(peer->pool, &table->stored, count * sizeof(PMEMoid), TYPE_TABLE);
}

/* Fills the first `count` slots with objects of `len` bytes. They are not linked. */
int peer_fill(struct peer *peer, uint64_t number, uint64_t count, uint64_t len)
{
	struct table *table = &peer->tables[number];
	for (uint64_t done = 0; done < count; done += BATCH) {
		int failed = 0;
		TX_BEGIN(peer->pool) {
			for (uint64_t i = done; i < done + BATCH && i < count; i++)
				table->handles[i] = pmemobj_tx_zalloc(len, TYPE_OBJECT);
		} TX_ONABORT {
			failed = 1;
		} TX_END
		if (failed)
			return failed;
	}
	return 0;
}

static PMEMoid *slot_of(struct table *table, uint64_t slot)
{
	return (PMEMoid *)pmemobj_direct(table->stored) + slot;
}

/* Allocates, initialises and links an object, in one transaction. */
int peer_alloc(struct peer *peer, uint64_t number, uint64_t slot, const void *bytes, uint64_t len)
{
	struct table *table = &peer->tables[number];
	int failed = 0;
	TX_BEGIN(peer->pool) {
		PMEMoid object = pmemobj_tx_alloc(len, TYPE_OBJECT);
		memcpy(pmemobj_direct(object), bytes, len);
		pmemobj_tx_add_range(table->stored, slot * sizeof(PMEMoid), sizeof(PMEMoid));
		*slot_of(table, slot) = object;
		table->handles[slot] = object;
	} TX_ONABORT {
		failed = 1;
	} TX_END
	return failed;
}

/*
 * Puts the handles of these slots side by side, so that the overwrites that follow find theirs
 * without a miss in a large table, which would be no doing of the store's. Refuses empty slots.
 */
int peer_line_up(struct peer *peer, uint64_t number, const uint64_t *slots, uint64_t count)
{
	struct table *table = &peer->tables[number];
	free(table->line);
	table->line = calloc(count, sizeof(PMEMoid));
	if (table->line == NULL)
		return -1;
	for (uint64_t i = 0; i < count; i++) {
		table->line[i] = table->handles[slots[i]];
		if (OID_IS_NULL(table->line[i]))
			return -1;
	}
	return 0;
}

/* Overwrites `len` bytes of the object at this place of the line. */
int peer_overwrite(struct peer *peer, uint64_t number, uint64_t place, const void *bytes, uint64_t len)
{
	PMEMoid object = peer->tables[number].line[place];
	int failed = 0;
	TX_BEGIN(peer->pool) {
		pmemobj_tx_add_range(object, 0, len);
		memcpy(pmemobj_direct(object), bytes, len);
	} TX_ONABORT {
		failed = 1;
	} TX_END
	return failed;
}

/* Copies the start of an object that is linked, found as the pool itself has it. */
int peer_read(struct peer *peer, uint64_t number, uint64_t slot, void *into, uint64_t len)
{
	PMEMoid object = *slot_of(&peer->tables[number], slot);
	if (OID_IS_NULL(object) || pmemobj_alloc_usable_size(object) < len)
		return -1;
	memcpy(into, pmemobj_direct(object), len);
	return 0;
}

/* Where in the pool an object lies; 0 for an empty slot. */
uint64_t peer_offset(struct peer *peer, uint64_t number, uint64_t slot)
{
	return peer->tables[number].handles[slot].off;
}

/* Frees and unlinks an object. */
int peer_free(struct peer *peer, uint64_t number, uint64_t slot)
{
	struct table *table = &peer->tables[number];
	int failed = 0;
	if (OID_IS_NULL(table->handles[slot]))
		return -1;
	TX_BEGIN(peer->pool) {
		pmemobj_tx_add_range(table->stored, slot * sizeof(PMEMoid), sizeof(PMEMoid));
		pmemobj_tx_free(table->handles[slot]);
		*slot_of(table, slot) = OID_NULL;
	} TX_ONCOMMIT {
		table->handles[slot] = OID_NULL;
	} TX_ONABORT {
		failed = 1;
	} TX_END
	return failed;
}

/* How a survey ended: see peer_survey. */
enum { READ = 0, REFUSED = 1, DIED = 2, HUNG = 3 };

/*
 * What a program gets of a pool that is closed: the library is asked whether it is sound, it is opened,
 * and every object of a table is copied to `into`, with a 1 in `told` for each that was read and a 2 for
 * each that was not. In a process of its own, since damage may end it or keep it for ever; `into` and
 * `told` are shared with it. Answers READ; REFUSED if the library says that the pool is not sound, or does
 * not open it; DIED or HUNG of the process, with what it had read by then; -1 if there was no process.
 */
int peer_survey(struct peer *peer, const char *path, uint64_t number, uint64_t count, uint64_t len,
		uint8_t *into, uint8_t *told)
{
	if (peer->pool != NULL || number >= TABLES)
		return -1;
	pid_t child = fork();
	if (child < 0)
		return -1;
	if (child == 0) {
		/* No handler of the parent's, and no core: to die is one of the answers. */
		for (int it = 1; it < NSIG; it++)
			signal(it, SIG_DFL);
		alarm(20);
		if (pmemobj_check(path, "bench") != 1 || peer_open(peer, path) != 0)
			_exit(REFUSED);
		for (uint64_t slot = 0; slot < count; slot++)
			told[slot] = peer_read(peer, number, slot, into + slot * len, len) == 0 ? 1 : 2;
		pmemobj_close(peer->pool);
		_exit(READ);
	}
	int status;
	if (waitpid(child, &status, 0) != child)
		return -1;
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGALRM ? HUNG : DIED;
	/* The library ends a process that it finds no way out for. */
	int code = WEXITSTATUS(status);
	return code == READ || code == REFUSED ? code : DIED;
}

/* Kinds in the order ctree, rbtree, btree, skiplist, rtree, hashmap. */
int peer_map(struct peer *peer, int kind)
{
	const struct map_ops *const kinds[] = {
		MAP_CTREE, MAP_RBTREE, MAP_BTREE, MAP_SKIPLIST, MAP_RTREE, MAP_HASHMAP_TX,
	};
	if (kind < 0 || kind >= (int)(sizeof(kinds) / sizeof(kinds[0])))
		return -1;
	peer->maps = map_ctx_init(kinds[kind], peer->pool);
	if (peer->maps == NULL)
		return -1;
	/* The map's pointer has to lie in the pool: in the first slot of a table. */
	int failed = peer_table(peer, 0, 1);
	if (failed)
		return failed;
	TOID(struct map) *home = pmemobj_direct(peer->tables[0].stored);
	failed = map_create(peer->maps, home, NULL);
	if (failed)
		return failed;
	peer->map = *home;
	return map_init(peer->maps, peer->map);
}

/*
 * Inserts a key with a value of `len` bytes. Without a value the key leads to the pool's root, as in
 * libpmemobj's own benchmark: some of the maps follow what a key leads to.
 */
int peer_insert(struct peer *peer, uint64_t key, const void *bytes, uint64_t len)
{
	if (len == 0)
		return map_insert(peer->maps, peer->map, key, peer->root);
	int failed = 0;
	TX_BEGIN(peer->pool) {
		PMEMoid value = pmemobj_tx_alloc(len, TYPE_VALUE);
		memcpy(pmemobj_direct(value), bytes, len);
		failed = map_insert(peer->maps, peer->map, key, value);
	} TX_ONABORT {
		failed = 1;
	} TX_END
	return failed;
}

/* Looks a key up: 1 if it is there. Copies its value of `len` bytes, if it has one. */
int peer_get(struct peer *peer, uint64_t key, void *into, uint64_t len)
{
	if (len == 0)
		return map_lookup(peer->maps, peer->map, key);
	PMEMoid value = map_get(peer->maps, peer->map, key);
	if (OID_IS_NULL(value))
		return 0;
	memcpy(into, pmemobj_direct(value), len);
	return 1;
}

/* Removes a key, and frees its value if it has one. */
int peer_remove(struct peer *peer, uint64_t key, uint64_t len)
{
	if (len == 0)
		return OID_IS_NULL(map_remove(peer->maps, peer->map, key));
	int failed = 0;
	TX_BEGIN(peer->pool) {
		PMEMoid value = map_remove(peer->maps, peer->map, key);
		failed = OID_IS_NULL(value);
		if (!failed)
			pmemobj_tx_free(value);
	} TX_ONABORT {
		failed = 1;
	} TX_END
	return failed;
}
