/*
 * worker_id.h - workers as the admin address names them. Private to src/router/admin.
 *
 * An ID is the host:port of a worker's URL where no other worker has the same, else the whole URL.
 * Both are understood where an ID is read. In a path the URL is percent-encoded.
 *
 * A data-parallel rank has @RANK behind either; without it the ID is their server's.
 *
 * Threads: the control thread.
 */
#ifndef KVW_WORKER_ID_H
#define KVW_WORKER_ID_H

#include "fleet/members.h"

/* All members, as kvw_members_view shows them. */
struct kvw_worker_list {
	struct kvw_member_view *items; /* owned; borrows from the members until their next change */
	bool *twins; /* owned, [count]: a worker of another URL has the same host:port */
	size_t count;
};

enum kvw_err kvw_worker_list_read(
	struct kvw_members *members, struct kvw_worker_list *out) KVW_MUST_CHECK;
void kvw_worker_list_finish(struct kvw_worker_list *list);

/* The ID of the member with this index, borrowed from its URL. */
struct kvw_slice kvw_worker_list_id(const struct kvw_worker_list *list, size_t index);

/* Index of the member with this ID (decoded): of several with its URL the one that stays, else one
 * that leaves. KVW_ENOTFOUND; KVW_ELIMIT: several URLs have this host:port. */
enum kvw_err kvw_worker_list_find(
	const struct kvw_worker_list *list, struct kvw_slice id, size_t *index) KVW_MUST_CHECK;

/* Index of the first rank of the server with this ID. KVW_ENOTFOUND: it is none with ranks;
 * KVW_ELIMIT: several servers have this host:port. */
enum kvw_err kvw_worker_list_find_server(
	const struct kvw_worker_list *list, struct kvw_slice id, size_t *index) KVW_MUST_CHECK;

#endif
