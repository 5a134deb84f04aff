/*
 * worker_id.c - finds workers by the names that the admin address uses.
 */
#include "admin/worker_id.h"

#include <stdlib.h>
#include <string.h>

/* Returns where host:port begins in a worker's URL, which starts with http:// or https://. */
static const char *host_of(const char *url)
{
	return url + (url[4] == 's' ? sizeof("https://") : sizeof("http://")) - 1;
}

/* The host:port of a worker in the list. */
struct host {
	struct kvw_slice text;
	size_t index;
};

static int by_host(const void *a, const void *b)
{
	const struct kvw_slice *x = &((const struct host *)a)->text,
			       *y = &((const struct host *)b)->text;
	int order = memcmp(x->data, y->data, x->len < y->len ? x->len : y->len);

	return order != 0 ? order : (x->len > y->len) - (x->len < y->len);
}

/* Fills list->twins: after sorting, workers with the same host:port are neighbours. */
static enum kvw_err find_twins(struct kvw_worker_list *list)
{
	struct host *hosts = calloc(list->count + 1, sizeof(*hosts));
	size_t begin = 0;

	list->twins = calloc(list->count + 1, sizeof(*list->twins));
	if (hosts == NULL || list->twins == NULL) {
		free(hosts);
		return KVW_ENOMEM;
	}
	for (size_t i = 0; i < list->count; i++) {
		const char *host = host_of(list->items[i].url);

		hosts[i] = (struct host){{host, strcspn(host, "/")}, i};
	}
	qsort(hosts, list->count, sizeof(*hosts), by_host);
	for (size_t end = 1; begin < list->count; end++) {
		bool differ = false;

		for (; end < list->count && by_host(&hosts[begin], &hosts[end]) == 0; end++)
			differ = differ || strcmp(list->items[hosts[begin].index].url,
						  list->items[hosts[end].index].url) != 0;
		for (; begin < end; begin++)
			list->twins[hosts[begin].index] = differ;
	}
	free(hosts);
	return KVW_OK;
}

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
	if (find_twins(&list) != KVW_OK) {
		kvw_worker_list_finish(&list);
		return KVW_ENOMEM;
	}
	*out = list;
	return KVW_OK;
}

void kvw_worker_list_finish(struct kvw_worker_list *list)
{
	free(list->twins);
	free(list->items);
	*list = (struct kvw_worker_list){0};
}

/* Returns whether the URL has this host:port. */
static bool has_host(const char *url, struct kvw_slice id)
{
	const char *host = host_of(url);

	return strncmp(host, id.data, id.len) == 0 && (host[id.len] == '\0' || host[id.len] == '/');
}

struct kvw_slice kvw_worker_list_id(const struct kvw_worker_list *list, size_t index)
{
	const char *url = list->items[index].url;
	const char *host = host_of(url);

	return list->twins[index] ? kvw_slice_of(url)
				  : (struct kvw_slice){host, strcspn(host, "/")};
}

static bool is_named(const char *url, struct kvw_slice id, bool whole)
{
	return whole ? kvw_slice_equal(id, kvw_slice_of(url)) : id.len > 0 && has_host(url, id);
}

/* Returns the order in which members are preferred: those that stay, those that leave, former
 * ones. */
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

enum kvw_err kvw_worker_list_find_server(
	const struct kvw_worker_list *list, struct kvw_slice id, size_t *index)
{
	const char *found = NULL;
	size_t found_len = 0;

	while (id.len > 0 && id.data[id.len - 1] == '/')
		id.len--;
	for (size_t i = 0; i < list->count; i++) {
		const char *url = list->items[i].url, *host = host_of(url);
		struct kvw_slice server = {url, 0}, name = {host, 0};

		if (kvw_rank_split(url, &server.len) == KVW_RANK_NONE)
			continue;
		name.len = strcspn(host, "/");
		if (name.len > server.len - (size_t)(host - url))
			name.len = server.len - (size_t)(host - url);
		if (!kvw_slice_equal(id, server) && !kvw_slice_equal(id, name))
			continue;
		if (found == NULL)
			*index = i;
		else if (found_len != server.len || memcmp(found, url, found_len) != 0)
			return KVW_ELIMIT;
		found = url;
		found_len = server.len;
	}
	return found == NULL ? KVW_ENOTFOUND : KVW_OK;
}
