/*
 * admin.h - a Unix socket in a store's folder, on which other processes send requests to the
 * store's owner.
 *
 * A request is one line, and so is its answer. The owner answers one request at a time, on a thread
 * of its own; the peer's user must be the owner's or root.
 */
#ifndef KVT_ADMIN_H
#define KVT_ADMIN_H

#include "chunk/note.h"

#define KVT_ADMIN_LINE 16384 /* most bytes of a request or an answer, with its line end */

struct kvt_admin;

/* Writes the answer to `request` to `out`, which has KVT_ADMIN_LINE bytes. Both are without a line
 * end. */
typedef void (*kvt_admin_answer)(void *self, const char *request, char *out);

/* Serves `folder`. Replaces the socket of a former owner, which has ended: the caller owns the
 * store's lock. `surroundings` and self are borrowed until destroy. KVT_EIO, KVT_ENOMEM. */
enum kvt_status kvt_admin_create(const char *folder, const struct kvt_surroundings *surroundings,
	kvt_admin_answer answer, void *self, struct kvt_admin **out) KVT_MUST_CHECK;
/* Waits until the answer under way is written, so the caller has to hurry its function; a request
 * of which only a part has come is dropped. NULL is allowed. */
void kvt_admin_destroy(struct kvt_admin *a);

/* Sends a request to the owner of `folder`. `answer` has room for KVT_ADMIN_LINE. KVT_MISS: no
 * process listens there; KVT_EIO: no answer, or not within timeout_ns; errno has the cause. */
enum kvt_status kvt_admin_ask(
	const char *folder, const char *request, uint64_t timeout_ns, char *answer) KVT_MUST_CHECK;

#endif
