/*
 * watch.c - a list of all TLS contexts of a process, by which their certificates are renewed while
 * it runs.
 */
#include "tls/watch.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* Inherited ticket keys, which wait until their context is added. */
struct kvw_tls_heirloom {
	char use[16]; /* "": the entry is free */
	int64_t since_ns; /* time when the keys came */
	struct kvw_tls_passed passed;
};

void kvw_tls_watch_init(struct kvw_tls_watch *watch)
{
	memset(watch, 0, sizeof(*watch));
	pthread_mutex_init(&watch->lock, NULL);
}

void kvw_tls_watch_finish(struct kvw_tls_watch *watch)
{
	kvw_tls_watch_disinherit(watch);
	free(watch->items);
	pthread_mutex_destroy(&watch->lock);
}

/* Makes room for one more item. The caller holds the lock. Returns false if memory is short. */
static bool make_room(struct kvw_tls_watch *watch)
{
	size_t room = watch->room == 0 ? 8 : 2 * watch->room;
	struct kvw_tls_watch_item *items;

	if (watch->count < watch->room)
		return true;
	items = realloc(watch->items, room * sizeof(items[0]));
	if (items == NULL)
		return false;
	watch->items = items;
	watch->room = room;
	return true;
}

bool kvw_tls_watch_pass(struct kvw_tls_watch *watch, size_t n, int64_t now_ns, const char **use,
	struct kvw_tls_passed *out)
{
	bool passed = false;

	pthread_mutex_lock(&watch->lock);
	for (size_t i = 0; !passed && i < watch->count; i++) {
		passed = kvw_tls_pass_tickets(watch->items[i].tls, now_ns, out) && n-- == 0;
		*use = watch->items[i].use;
	}
	pthread_mutex_unlock(&watch->lock);
	return passed;
}

bool kvw_tls_watch_inherit(struct kvw_tls_watch *watch, const char *use, int64_t now_ns,
	const struct kvw_tls_passed *passed)
{
	size_t i = 0;

	pthread_mutex_lock(&watch->lock);
	if (watch->heirlooms == NULL)
		watch->heirlooms = calloc(KVW_TLS_HEIRLOOMS, sizeof(watch->heirlooms[0]));
	while (watch->heirlooms != NULL && i < KVW_TLS_HEIRLOOMS &&
		watch->heirlooms[i].use[0] != '\0')
		i++;
	if (watch->heirlooms == NULL || strlen(use) >= sizeof(watch->heirlooms[i].use))
		i = KVW_TLS_HEIRLOOMS;
	if (i < KVW_TLS_HEIRLOOMS) {
		(void)strcpy(watch->heirlooms[i].use, use);
		watch->heirlooms[i].since_ns = now_ns;
		watch->heirlooms[i].passed = *passed;
	}
	pthread_mutex_unlock(&watch->lock);
	return i < KVW_TLS_HEIRLOOMS;
}

void kvw_tls_watch_disinherit(struct kvw_tls_watch *watch)
{
	pthread_mutex_lock(&watch->lock);
	if (watch->heirlooms != NULL)
		explicit_bzero(watch->heirlooms, KVW_TLS_HEIRLOOMS * sizeof(watch->heirlooms[0]));
	free(watch->heirlooms);
	watch->heirlooms = NULL;
	pthread_mutex_unlock(&watch->lock);
}

/* Locked. */
static void inherit(struct kvw_tls_watch *watch, struct kvw_tls *tls, const char *use)
{
	for (size_t i = 0; watch->heirlooms != NULL && i < KVW_TLS_HEIRLOOMS; i++) {
		struct kvw_tls_heirloom *heirloom = &watch->heirlooms[i];

		if (strcmp(heirloom->use, use) != 0)
			continue;
		if (!kvw_tls_inherit_tickets(tls, heirloom->since_ns, &heirloom->passed))
			kvw_warn("tls",
				"keys of session tickets that were handed over are none use=%s",
				use);
		explicit_bzero(heirloom, sizeof(*heirloom));
	}
}

void kvw_tls_watch_add(struct kvw_tls_watch *watch, struct kvw_tls *tls, const char *use)
{
	bool added;

	pthread_mutex_lock(&watch->lock);
	inherit(watch, tls, use);
	added = make_room(watch);
	if (added)
		watch->items[watch->count++] = (struct kvw_tls_watch_item){tls, use};
	pthread_mutex_unlock(&watch->lock);
	if (!added)
		kvw_error("tls", "out of memory: certificates are not watched for new files use=%s",
			use);
}

void kvw_tls_watch_remove(struct kvw_tls_watch *watch, const struct kvw_tls *tls)
{
	pthread_mutex_lock(&watch->lock);
	for (size_t i = 0; i < watch->count; i++)
		if (watch->items[i].tls == tls) {
			watch->floods_before += kvw_tls_floods(tls);
			watch->items[i] = watch->items[--watch->count];
			break;
		}
	pthread_mutex_unlock(&watch->lock);
}

static void look_at_item(
	struct kvw_tls_watch *watch, const struct kvw_tls_watch_item *item, bool now_too)
{
	char why[384] = "";

	switch (kvw_tls_look(item->tls, now_too, why, sizeof(why))) {
	case KVW_TLS_SAME:
		break;
	case KVW_TLS_RENEWED:
		atomic_fetch_add(&watch->renewed, 1);
		kvw_info("tls", "certificates renewed use=%s file=%s", item->use,
			kvw_tls_file(item->tls, 0)->path);
		break;
	case KVW_TLS_REFUSED:
		atomic_fetch_add(&watch->refused, 1);
		kvw_error("tls",
			"new certificates refused, the old ones serve on use=%s why=\"%s\"",
			item->use, why);
		break;
	}
}

void kvw_tls_watch_look(struct kvw_tls_watch *watch, bool now_too, int64_t now_ns)
{
	pthread_mutex_lock(&watch->lock);
	for (size_t i = 0; i < watch->count; i++) {
		look_at_item(watch, &watch->items[i], now_too);
		kvw_tls_rotate_tickets(watch->items[i].tls, now_ns);
	}
	pthread_mutex_unlock(&watch->lock);
}

uint64_t kvw_tls_watch_floods(struct kvw_tls_watch *watch)
{
	uint64_t sum;

	pthread_mutex_lock(&watch->lock);
	sum = watch->floods_before;
	for (size_t i = 0; i < watch->count; i++)
		sum += kvw_tls_floods(watch->items[i].tls);
	pthread_mutex_unlock(&watch->lock);
	return sum;
}

/* Returns the earliest end of validity of a file's certificates as this context has loaded them; 0:
 * the context does not use the file. */
static int64_t end_in(const struct kvw_tls_watch_item *item, const char *use, const char *path)
{
	const struct kvw_tls_file *file;

	for (size_t n = 0;
		strcmp(item->use, use) == 0 && (file = kvw_tls_file(item->tls, n)) != NULL; n++) {
		int64_t end_s = atomic_load_explicit(&file->not_after_s, memory_order_relaxed);

		if (end_s != 0 && strcmp(file->path, path) == 0)
			return end_s;
	}
	return 0;
}

/* Returns the earliest end over all contexts. Contexts with different CAs may use the same
 * certificate, and one may have refused a renewal that another has loaded. 0: an earlier context,
 * or an earlier file of this one, reports it. */
static int64_t end_of(const struct kvw_tls_watch *watch, size_t i, size_t n)
{
	const struct kvw_tls_watch_item *item = &watch->items[i];
	const struct kvw_tls_file *file = kvw_tls_file(item->tls, n);
	int64_t first_s = atomic_load_explicit(&file->not_after_s, memory_order_relaxed);

	for (size_t m = 0; m < n; m++) {
		const struct kvw_tls_file *earlier = kvw_tls_file(item->tls, m);

		if (atomic_load_explicit(&earlier->not_after_s, memory_order_relaxed) != 0 &&
			strcmp(earlier->path, file->path) == 0)
			return 0;
	}
	for (size_t other = 0; other < watch->count && first_s != 0; other++) {
		int64_t end_s =
			other == i ? 0 : end_in(&watch->items[other], item->use, file->path);

		if (end_s != 0 && other < i)
			return 0;
		if (end_s != 0 && end_s < first_s)
			first_s = end_s;
	}
	return first_s;
}

void kvw_tls_watch_each(struct kvw_tls_watch *watch, kvw_tls_watch_fn fn, void *arg)
{
	pthread_mutex_lock(&watch->lock);
	for (size_t i = 0; i < watch->count; i++) {
		const struct kvw_tls_file *file;

		for (size_t n = 0; (file = kvw_tls_file(watch->items[i].tls, n)) != NULL; n++) {
			int64_t not_after_s = end_of(watch, i, n);

			if (not_after_s != 0)
				fn(arg, watch->items[i].use, file->path, not_after_s);
		}
	}
	pthread_mutex_unlock(&watch->lock);
}
