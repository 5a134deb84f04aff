/*
 * admin_text.h - the lines that are sent on an owner's socket.
 *
 *	request  erase 1 DRY TENANT FINGERPRINT TIMEOUT_MS KEY...
 *	answer   erased 1 STATUS COUNTED CHUNKS BYTES COUNTED CHUNKS BYTES COUNTED CHUNKS BYTES
 *	         refused TEXT
 *
 *	request  tenants 1 MOST
 *	answer   tenants 1 TENANTS CHUNKS BYTES [TENANT CHUNKS BYTES]...
 *
 * The second request is about memory (L1): its answer has the number of tenants, the sums of the unnamed tenants, and
 * the tenants with the most bytes.
 *
 *	request  fragments 1
 *	answer   fragments 1 LOADS HIT_TOKENS MISSED_TOKENS LOADED_BYTES MOVED_BYTES REFUSED...
 *
 * The third request is about reuse of fragments since the owner began; refusals by reason, in the order of enum
 * kvt_fragment_refusal.
 *
 * TENANT, FINGERPRINT and KEY in hex digits, the first two of an erase "-" for any; three numbers for each tier in the
 * order of enum kvt_tier_id.
 */
#ifndef KVT_ADMIN_TEXT_H
#define KVT_ADMIN_TEXT_H

#include <stdbool.h>

#include "chunk/tenants.h"
#include "kvtier/kvtier_fragments.h"

#define KVT_ADMIN_KEYS 128 /* most keys in one request */

/* A request, with the data that its pointers refer to. */
struct kvt_admin_erase {
	struct kvt_which which;
	struct kvt_tenant tenant;
	struct kvt_fingerprint fingerprint;
	struct kvt_key keys[KVT_ADMIN_KEYS];
	uint64_t timeout_ns;
};

/* Reads exactly `bytes` bytes, in hex digits of either case, after which there must be a blank or
 * the text's end. */
bool kvt_admin_unhex(const char *digits, uint8_t *out, size_t bytes);

/* Returns false if there are more keys than KVT_ADMIN_KEYS. */
bool kvt_admin_write_erase(
	const struct kvt_which *which, uint64_t timeout_ns, char *out, size_t room);
/* Returns false if the line is not such a request. */
bool kvt_admin_read_erase(const char *request, struct kvt_admin_erase *out);

void kvt_admin_write_erased(
	enum kvt_status status, const struct kvt_erased *erased, char *out, size_t room);
/* Returns false if the line is another answer. */
bool kvt_admin_read_erased(const char *answer, enum kvt_status *status, struct kvt_erased *erased);

void kvt_admin_write_tenants(size_t most, char *out, size_t room);
/* Returns false if the line is not such a request. */
bool kvt_admin_read_tenants(const char *request, size_t *most) KVT_MUST_CHECK;
/* These are for the shared tier, as far as the owner knows its tenants. */
void kvt_admin_write_shared(size_t most, char *out, size_t room);
bool kvt_admin_read_shared(const char *request, size_t *most);

/* A `room` of KVT_ADMIN_LINE is enough for KVT_TENANTS_LISTED tenants. */
void kvt_admin_write_listed(const struct kvt_tenant_list *list, char *out, size_t room);
/* Returns false if the line is another answer. */
bool kvt_admin_read_listed(const char *answer, struct kvt_tenant_list *out);

#define KVT_ADMIN_FRAGMENTS "fragments 1" /* the request */

void kvt_admin_write_reused(const struct kvt_fragments_stats *stats, char *out, size_t room);
/* Sets the members that the answer has; the others become 0. Returns false if the answer is of
 * another form. */
bool kvt_admin_read_reused(const char *answer, struct kvt_fragments_stats *out);

#endif
