/*
 * worker_id.h - workers as the admin address names them. For src/router/admin and
 * src/router/status.
 *
 * An ID is the host:port of a worker's URL if no other worker has the same, otherwise the whole
 * URL. Both forms can be given. In a path the URL is percent-encoded.
 *
 * The ID of a data-parallel rank ends with @RANK; without it the ID names the ranks' server.
 *
 * Threads: the control thread.
 */
#ifndef KVW_WORKER_ID_H
#define KVW_WORKER_ID_H

#include "fleet/members.h"

/* All members, as kvw_members_view shows them. */
struct kvw_worker_list {
	/* owned; they borrow from the members until the next change of these */
	struct kvw_member_view *items;
	bool *twins; /* owned, [count]: a worker of another URL has the same host:port */
	size_t count;
};

enum kvw_err kvw_worker_list_read(
	struct kvw_members *members, struct kvw_worker_list *out) KVW_MUST_CHECK;
void kvw_worker_list_finish(struct kvw_worker_list *list);

/* Returns the ID of the member with this index, borrowed from its URL. */
struct kvw_slice kvw_worker_list_id(const struct kvw_worker_list *list, size_t index);

/* Finds the index of the member with this ID (decoded): if several have its URL the one that stays,
 * otherwise one that leaves. KVW_ENOTFOUND; KVW_ELIMIT: several URLs have this host:port. */
enum kvw_err kvw_worker_list_find(
	const struct kvw_worker_list *list, struct kvw_slice id, size_t *index) KVW_MUST_CHECK;

/* Finds the index of the first rank of the server with this ID. KVW_ENOTFOUND: there is no such
 * server with ranks; KVW_ELIMIT: several servers have this host:port. */
enum kvw_err kvw_worker_list_find_server(
	const struct kvw_worker_list *list, struct kvw_slice id, size_t *index) KVW_MUST_CHECK;

#endif
