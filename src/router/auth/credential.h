/*
 * credential.h - reads the key of a request: `Authorization: Bearer KEY` or `x-api-key: KEY`.
 *
 * A request with two keys is refused; so is one with a key in its query, because queries are
 * written into logs.
 */
#ifndef KVW_CREDENTIAL_H
#define KVW_CREDENTIAL_H

#include "config/config.h"
#include "http/head.h"

enum kvw_credential {
	KVW_CREDENTIAL_FOUND,
	KVW_CREDENTIAL_MISSING,
	KVW_CREDENTIAL_SCHEME, /* Authorization has another scheme than Bearer */
	KVW_CREDENTIAL_TWICE,  /* a field is there twice, or two fields have different keys */
	KVW_CREDENTIAL_QUERY,  /* in the query */
};

/* Takes the request's key. KVW_CREDENTIAL_FOUND: *out is the key's hash. With every result the
 * bytes of keys in the head's fields and its query are overwritten, so the head's memory must be
 * writable. */
enum kvw_credential kvw_credential_take(const struct kvw_head *head, struct kvw_digest *out);

/* Does the same, but calls look(arg, key, its hash) before the key's bytes are overwritten. Called
 * only with the result KVW_CREDENTIAL_FOUND. */
typedef void kvw_credential_look(
	void *arg, struct kvw_slice shown, const struct kvw_digest *digest);
enum kvw_credential kvw_credential_take_seen(
	const struct kvw_head *head, struct kvw_digest *out, kvw_credential_look *look, void *arg);

/* Returns whether this header field may contain a key. */
bool kvw_credential_field(const struct kvw_field *field);

/* Excludes the fields that contain a key from the forwarded head. */
void kvw_credential_hide(struct kvw_head *head);

#endif
