/*
 * admin.h - a Unix socket in a store's folder, by which another process asks the store's owner.
 *
 * A request is one line, and so is its answer. The owner answers one at a time, on a thread of its
 * own; the peer's user must be the owner's or root.
 */
#ifndef KVT_ADMIN_H
#define KVT_ADMIN_H

#include "chunk/note.h"

#define KVT_ADMIN_LINE 16384 /* bytes of a request or an answer, its end included */

struct kvt_admin;

/* Writes the answer to `request` (without its line end) to `out`, KVT_ADMIN_LINE bytes, without a line end. */
typedef void (*kvt_admin_answer)(void *self, const char *request, char *out);

/* Serves `folder`; what a former owner left there is replaced: the caller owns the store's lock. `surroundings`
 * and self are borrowed until destroy. KVT_EIO, KVT_ENOMEM. */
enum kvt_status kvt_admin_create(const char *folder, const struct kvt_surroundings *surroundings,
	kvt_admin_answer answer, void *self, struct kvt_admin **out) KVT_MUST_CHECK;
/* Ends after the answer under way, which it is the caller's to hurry; half a request is not waited for.
 * NULL is allowed. */
void kvt_admin_destroy(struct kvt_admin *a);

/* Asks the owner of `folder`. `answer` has room for KVT_ADMIN_LINE. KVT_MISS: nothing listens there;
 * KVT_EIO: no answer, or not within timeout_ns; errno says why. */
enum kvt_status kvt_admin_ask(
	const char *folder, const char *request, uint64_t timeout_ns, char *answer) KVT_MUST_CHECK;

#endif
