/*
 * credential.h - the key that a request shows: `Authorization: Bearer KEY` or `x-api-key: KEY`.
 *
 * A request that shows two, or one in its query, where it gets into logs, is refused rather than
 * read one way or another.
 */
#ifndef KVW_CREDENTIAL_H
#define KVW_CREDENTIAL_H

#include "config/config.h"
#include "http/head.h"

enum kvw_credential {
	KVW_CREDENTIAL_FOUND,
	KVW_CREDENTIAL_MISSING,
	KVW_CREDENTIAL_SCHEME, /* Authorization of another scheme than Bearer */
	KVW_CREDENTIAL_TWICE,  /* a field twice, or two fields that do not say the same */
	KVW_CREDENTIAL_QUERY,  /* in the query */
};

/* KVW_CREDENTIAL_FOUND: *out is the hash of the key. Whatever it finds, the key's bytes are
 * overwritten where they lie, in the head's fields and in its query: the head must lie in memory
 * that may be written. */
enum kvw_credential kvw_credential_take(const struct kvw_head *head, struct kvw_digest *out);

/* The same; before the bytes are overwritten, look(arg, key, its hash) sees them.
 * Called for KVW_CREDENTIAL_FOUND alone. */
typedef void kvw_credential_look(
	void *arg, struct kvw_slice shown, const struct kvw_digest *digest);
enum kvw_credential kvw_credential_take_seen(
	const struct kvw_head *head, struct kvw_digest *out, kvw_credential_look *look, void *arg);

/* May this header field show a key? */
bool kvw_credential_field(const struct kvw_field *field);

/* Leaves the fields that show a key out of the forwarded head. */
void kvw_credential_hide(struct kvw_head *head);

#endif
