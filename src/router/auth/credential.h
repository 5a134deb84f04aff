/*
 * credential.h - reads the key of a request: `Authorization: Bearer KEY` or `x-api-key: KEY`.
 *
 * A request with two keys, or one in its query, which gets into logs, is refused.
 */
#ifndef KVW_CREDENTIAL_H
#define KVW_CREDENTIAL_H

#include "config/config.h"
#include "http/head.h"

enum kvw_credential {
	KVW_CREDENTIAL_FOUND,
	KVW_CREDENTIAL_MISSING,
	KVW_CREDENTIAL_SCHEME, /* Authorization of another scheme than Bearer */
	KVW_CREDENTIAL_TWICE,  /* a field twice, or two fields with different keys */
	KVW_CREDENTIAL_QUERY,  /* in the query */
};

/* KVW_CREDENTIAL_FOUND: *out is the hash of the key. In every case the key's bytes are overwritten
 * in place, in the head's fields and in its query: the head's memory must be writable. */
enum kvw_credential kvw_credential_take(const struct kvw_head *head, struct kvw_digest *out);

/* The same; before the bytes are overwritten, look(arg, key, its hash) sees them.
 * Called for KVW_CREDENTIAL_FOUND alone. */
typedef void kvw_credential_look(
	void *arg, struct kvw_slice shown, const struct kvw_digest *digest);
enum kvw_credential kvw_credential_take_seen(
	const struct kvw_head *head, struct kvw_digest *out, kvw_credential_look *look, void *arg);

/* Whether this header field may have a key. */
bool kvw_credential_field(const struct kvw_field *field);

/* Excludes the fields with a key from the forwarded head. */
void kvw_credential_hide(struct kvw_head *head);

#endif
