/*
 * worker_id.c - see worker_id.h.
 */
#include "admin/worker_id.h"

#include <stdlib.h>
#include <string.h>

enum kvw_err kvw_worker_list_read(struct kvw_members *members, struct kvw_worker_list *out)
{
	struct kvw_worker_list list = {0};
	struct kvw_member_view view;
	size_t room = 0;

	while (kvw_members_view(members, list.count, &view)) {
		if (list.count == room) {
			struct kvw_member_view *grown;

			room = room == 0 ? 64 : 2 * room;
			grown = realloc(list.items, room * sizeof(*grown));
			if (grown == NULL) {
				free(list.items);
				return KVW_ENOMEM;
			}
			list.items = grown;
		}
		list.items[list.count++] = view;
	}
	*out = list;
	return KVW_OK;
}

void kvw_worker_list_finish(struct kvw_worker_list *list)
{
	free(list->items);
	*list = (struct kvw_worker_list){0};
}

/* Where host:port begins in a worker's URL, http:// or https://. */
static const char *host_of(const char *url)
{
	return url + (url[4] == 's' ? sizeof("https://") : sizeof("http://")) - 1;
}

/* Whether it is this host:port. A list of all workers compares each with each. */
static bool has_host(const char *url, struct kvw_slice id)
{
	const char *host = host_of(url);

	return strncmp(host, id.data, id.len) == 0 && (host[id.len] == '\0' || host[id.len] == '/');
}

struct kvw_slice kvw_worker_list_id(const struct kvw_worker_list *list, size_t index)
{
	const char *url = list->items[index].url;
	const char *host = host_of(url);
	const struct kvw_slice own = {host, strcspn(host, "/")};

	for (size_t i = 0; i < list->count; i++)
		if (i != index && has_host(list->items[i].url, own) &&
			strcmp(url, list->items[i].url) != 0)
			return kvw_slice_of(url);
	return own;
}

static bool is_named(const char *url, struct kvw_slice id, bool whole)
{
	return whole ? kvw_slice_equal(id, kvw_slice_of(url)) : id.len > 0 && has_host(url, id);
}

/* One that stays before one that leaves before one that is no member any more. */
static int rank_of(const struct kvw_member_view *view)
{
	return view->worker == NULL ? 0 : view->leaves ? 1 : 2;
}

enum kvw_err kvw_worker_list_find(
	const struct kvw_worker_list *list, struct kvw_slice id, size_t *index)
{
	bool whole = memmem(id.data, id.len, "://", 3) != NULL;
	size_t best = SIZE_MAX;

	while (whole && id.len > 0 && id.data[id.len - 1] == '/')
		id.len--;
	for (size_t i = 0; i < list->count; i++) {
		const struct kvw_member_view *view = &list->items[i];

		if (!is_named(view->url, id, whole))
			continue;
		if (best == SIZE_MAX)
			best = i;
		else if (strcmp(view->url, list->items[best].url) != 0)
			return KVW_ELIMIT;
		else if (rank_of(view) > rank_of(&list->items[best]))
			best = i;
	}
	if (best == SIZE_MAX)
		return KVW_ENOTFOUND;
	*index = best;
	return KVW_OK;
}
