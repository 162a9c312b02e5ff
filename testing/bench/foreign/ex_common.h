/*
 * What the examples of libpmemobj expect of a header that Debian's package does not ship.
 */

#ifndef EX_COMMON_H
#define EX_COMMON_H

#include <stdint.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* Number of the highest bit set, -1 if none is. */
static inline int find_last_set_64(uint64_t value)
{
	return value == 0 ? -1 : 63 - __builtin_clzll(value);
}

#endif
