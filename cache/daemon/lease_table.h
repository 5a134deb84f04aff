/*
 * lease_table.h - the leases that kvtierd has granted: found by id, ended by time.
 *
 * A table has room for a fixed number of leases; a place is reserved before the object is loaded, so that a flood is
 * refused before it costs a load. Adding, finding and ending cost the same for any number of leases. Thread-safe: a
 * short lock of its own.
 */
#ifndef KVT_LEASE_TABLE_H
#define KVT_LEASE_TABLE_H

#include <stdbool.h>

#include "daemon/objects.h"

struct kvt_lease_table;

/* most > 0; longest_ns: longest duration of a lease. KVT_EINVAL, KVT_ENOMEM. */
enum kvt_status kvt_lease_table_create(uint32_t most, uint64_t longest_ns, int64_t now_ns,
	struct kvt_lease_table **out) KVT_MUST_CHECK;
void kvt_lease_table_destroy(struct kvt_lease_table *t); /* empty; NULL is allowed */

/* Reserves a place. False: the table is full. */
bool kvt_lease_table_reserve(struct kvt_lease_table *t) KVT_MUST_CHECK;
void kvt_lease_table_unreserve(struct kvt_lease_table *t);

/* Uses a reservation, and keeps the hold until ends_ns. KVT_EIO: no random bytes, and hold and reservation are still
 * the caller's. */
enum kvt_status kvt_lease_table_add(struct kvt_lease_table *t, const struct kvt_key *key,
	struct kvt_lease *hold, int64_t now_ns, int64_t ends_ns,
	char id[KVT_LEASE_ID_BYTES]) KVT_MUST_CHECK;

/* Ends a lease; the hold is the caller's. NULL: no lease has this id. */
struct kvt_lease *kvt_lease_table_take(struct kvt_lease_table *t, struct kvw_slice id);

/* Ends up to `most` leases whose time is over, at the latest a thousandth of longest_ns afterwards; returns how many,
 * whose holds are the caller's. */
size_t kvt_lease_table_expire(
	struct kvt_lease_table *t, int64_t now_ns, struct kvt_lease **holds, size_t most);
/* Ends all leases. */
size_t kvt_lease_table_drain(struct kvt_lease_table *t, struct kvt_lease **holds, size_t most);
/* Time of the next call of expire; INT64_MAX: no lease will expire. */
int64_t kvt_lease_table_due(struct kvt_lease_table *t);

uint64_t kvt_lease_table_count(struct kvt_lease_table *t);
uint64_t kvt_lease_table_oldest(struct kvt_lease_table *t, int64_t now_ns); /* age in ns; 0: no lease */
/* End of the last lease; 0: no lease. */
int64_t kvt_lease_table_last_end(struct kvt_lease_table *t);
/* Number of leases on one key. */
uint32_t kvt_lease_table_count_of(struct kvt_lease_table *t, const struct kvt_key *key);

#endif
