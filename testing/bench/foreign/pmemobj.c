/*
 * The other side of the race: libpmemobj, driven as its manual says, behind a plain interface that
 * the benchmark loads at run time. Built by `cargo xtask bench object` against Debian's development
 * package, together with the six maps of that package's examples.
 *
 * Every function answers 0 if all went well.
 */

#include <libpmemobj.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "map.h"
#include "map_btree.h"
#include "map_ctree.h"
#include "map_hashmap_tx.h"
#include "map_rbtree.h"
#include "map_rtree.h"
#include "map_skiplist.h"

enum { TYPE_OBJECT = 1, TYPE_TABLE = 2, TYPE_VALUE = 3 };

struct peer {
	PMEMobjpool *pool;
	PMEMoid table; /* an array of PMEMoid: what the objects hang from */
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

void peer_close(struct peer *peer)
{
	if (peer->maps != NULL)
		map_ctx_free(peer->maps);
	pmemobj_close(peer->pool);
	free(peer);
}

/* A table of `count` null pointers. */
int peer_table(struct peer *peer, uint64_t count)
{
	return pmemobj_zalloc(peer->pool, &peer->table, count * sizeof(PMEMoid), TYPE_TABLE);
}

static PMEMoid *slot_of(struct peer *peer, uint64_t slot)
{
	return (PMEMoid *)pmemobj_direct(peer->table) + slot;
}

/* Allocates, initialises and links an object, in one transaction. */
int peer_alloc(struct peer *peer, uint64_t slot, const void *bytes, uint64_t len)
{
	int failed = 0;
	TX_BEGIN(peer->pool) {
		PMEMoid object = pmemobj_tx_alloc(len, TYPE_OBJECT);
		memcpy(pmemobj_direct(object), bytes, len);
		pmemobj_tx_add_range(peer->table, slot * sizeof(PMEMoid), sizeof(PMEMoid));
		*slot_of(peer, slot) = object;
	} TX_ONABORT {
		failed = 1;
	} TX_END
	return failed;
}

/* Overwrites `len` bytes of an object from `at`. */
int peer_overwrite(struct peer *peer, uint64_t slot, uint64_t at, const void *bytes, uint64_t len)
{
	PMEMoid object = *slot_of(peer, slot);
	int failed = 0;
	TX_BEGIN(peer->pool) {
		pmemobj_tx_add_range(object, at, len);
		memcpy((char *)pmemobj_direct(object) + at, bytes, len);
	} TX_ONABORT {
		failed = 1;
	} TX_END
	return failed;
}

/* Frees and unlinks an object. */
int peer_free(struct peer *peer, uint64_t slot)
{
	int failed = 0;
	TX_BEGIN(peer->pool) {
		pmemobj_tx_add_range(peer->table, slot * sizeof(PMEMoid), sizeof(PMEMoid));
		pmemobj_tx_free(*slot_of(peer, slot));
		*slot_of(peer, slot) = OID_NULL;
	} TX_ONABORT {
		failed = 1;
	} TX_END
	return failed;
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
	int failed = peer_table(peer, 1);
	if (failed)
		return failed;
	TOID(struct map) *home = pmemobj_direct(peer->table);
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
