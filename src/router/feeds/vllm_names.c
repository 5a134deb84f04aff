/* vllm_names.c - finds the worker that a topic names. */
#include "feeds/vllm_names.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "feeds/vllm_endpoints.h"

struct kvw_vllm_name {
	char *authority; /* owned */
	uint32_t worker;
};

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const struct kvw_vllm_name *)a)->authority,
		((const struct kvw_vllm_name *)b)->authority);
}

static enum kvw_err add_name(struct kvw_vllm_names *names, char *authority, uint32_t worker)
{
	if (authority == NULL)
		return KVW_ENOMEM;
	names->items[names->count++] = (struct kvw_vllm_name){authority, worker};
	return KVW_OK;
}

void kvw_vllm_names_clear(struct kvw_vllm_names *names)
{
	for (size_t i = 0; i < names->count; i++)
		free(names->items[i].authority);
	free(names->items);
	*names = (struct kvw_vllm_names){NULL, 0};
}

enum kvw_err kvw_vllm_names_begin(struct kvw_vllm_names *names, size_t workers)
{
	kvw_vllm_names_clear(names);
	names->items = calloc((1 + KVW_ADDRESSES_MAX) * workers + 1, sizeof(*names->items));
	return names->items == NULL ? KVW_ENOMEM : KVW_OK;
}

enum kvw_err kvw_vllm_names_add(struct kvw_vllm_names *names, struct kvw_worker *worker)
{
	char port[NI_MAXSERV], host[NI_MAXHOST], *text;
	enum kvw_err err = add_name(names, strdup(worker->authority), worker->id);
	struct sockaddr_storage address;

	for (size_t k = 0; err == KVW_OK && kvw_worker_address(worker, k, &address); k++) {
		if (getnameinfo((const struct sockaddr *)&address, kvw_address_len(&address), host,
			    sizeof(host), port, sizeof(port),
			    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
			continue;
		if (asprintf(&text, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host,
			    port) < 0)
			text = NULL;
		err = add_name(names, text, worker->id);
	}
	return err;
}

void kvw_vllm_names_end(struct kvw_vllm_names *names)
{
	qsort(names->items, names->count, sizeof(*names->items), compare_names);
}

bool kvw_vllm_names_find(
	const struct kvw_vllm_names *names, struct kvw_slice topic, uint32_t *worker)
{
	struct kvw_slice authority;
	char text[NI_MAXHOST + 8];
	const struct kvw_vllm_name wanted = {text, 0}, *found;

	if (!kvw_vllm_topic_worker(topic, &authority) || authority.len >= sizeof(text) ||
		names->count == 0)
		return false;
	memcpy(text, authority.data, authority.len);
	text[authority.len] = '\0';
	found = bsearch(&wanted, names->items, names->count, sizeof(*names->items), compare_names);
	if (found != NULL)
		*worker = found->worker;
	return found != NULL;
}
