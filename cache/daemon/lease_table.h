/*
 * lease_table.h - the leases that kvtierd has granted: found by id, ended by time.
 *
 * A table has room for a fixed number of leases. A place is reserved before the object is loaded,
 * so that excess requests are refused before they cost a load. Adding, finding and ending take
 * constant time. Thread-safe: the table has its own lock, which is held briefly.
 */
#ifndef KVT_LEASE_TABLE_H
#define KVT_LEASE_TABLE_H

#include <stdbool.h>

#include "daemon/objects.h"

struct kvt_lease_table;

/* most: limit of leases, > 0; longest_ns: longest duration of a lease. KVT_EINVAL, KVT_ENOMEM. */
enum kvt_status kvt_lease_table_create(uint32_t most, uint64_t longest_ns, int64_t now_ns,
	struct kvt_lease_table **out) KVT_MUST_CHECK;
/* the table must be empty; NULL is allowed */
void kvt_lease_table_destroy(struct kvt_lease_table *t);

/* Reserves a place for a lease. False: the table is full. */
bool kvt_lease_table_reserve(struct kvt_lease_table *t) KVT_MUST_CHECK;
void kvt_lease_table_unreserve(struct kvt_lease_table *t);

/* Turns a reservation into a lease, which keeps the hold until ends_ns. KVT_EIO: no random bytes;
 * the caller keeps hold and reservation. */
enum kvt_status kvt_lease_table_add(struct kvt_lease_table *t, const struct kvt_key *key,
	struct kvt_lease *hold, int64_t now_ns, int64_t ends_ns,
	char id[KVT_LEASE_ID_BYTES]) KVT_MUST_CHECK;

/* Ends a lease and returns its hold to the caller. NULL: no lease has this id. */
struct kvt_lease *kvt_lease_table_take(struct kvt_lease_table *t, struct kvw_slice id);

/* Ends up to `most` leases whose time is over, each at most a thousandth of longest_ns late.
 * Returns how many; the caller gets their holds. */
size_t kvt_lease_table_expire(
	struct kvt_lease_table *t, int64_t now_ns, struct kvt_lease **holds, size_t most);
/* Ends all leases. */
size_t kvt_lease_table_drain(struct kvt_lease_table *t, struct kvt_lease **holds, size_t most);
/* Returns when expire must be called next; INT64_MAX: no lease will expire. */
int64_t kvt_lease_table_due(struct kvt_lease_table *t);

uint64_t kvt_lease_table_count(struct kvt_lease_table *t);
/* age of the oldest lease in ns; 0: no lease */
uint64_t kvt_lease_table_oldest(struct kvt_lease_table *t, int64_t now_ns);
/* Returns when the last lease ends; 0: no lease. */
int64_t kvt_lease_table_last_end(struct kvt_lease_table *t);
/* Returns the number of leases on one key. */
uint32_t kvt_lease_table_count_of(struct kvt_lease_table *t, const struct kvt_key *key);

#endif
