/*
 * members.c - the directory's instances: registrations, heartbeats, and their end.
 *
 * An instance is kept while anything refers to it: a registration, a cursor, declared capacities, a
 * placement, or records that are being read. So placements point to their instance, and L2 outlives
 * its reporter: a private one by an hour, else servers that come and go under new names would use
 * up the instances.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "feeds/coordinator/directory_parts.h"

#define SILENT_NS (3600 * KVW_NS_PER_S) /* of instances that never registered */

static struct kvw_cd_instance **bucket_of(struct kvw_cd *cd, struct kvw_slice id)
{
	return &cd->instance_table[kvw_cd_hash(cd, id) & (KVW_CD_INSTANCES - 1)];
}

struct kvw_cd_instance *kvw_cd_find_instance(const struct kvw_cd *cd, struct kvw_slice id)
{
	struct kvw_cd_instance *found =
		cd->instance_table[kvw_cd_hash(cd, id) & (KVW_CD_INSTANCES - 1)];

	while (found != NULL && !kvw_slice_equal(kvw_slice_of(found->id), id))
		found = found->next;
	return found;
}

struct kvw_cd_instance *kvw_cd_take_instance(struct kvw_cd *cd, struct kvw_slice id)
{
	struct kvw_cd_instance *instance = kvw_cd_find_instance(cd, id), **bucket;

	if (instance != NULL)
		return instance;
	if (cd->instance_count == KVW_CD_INSTANCES || memchr(id.data, '\0', id.len) != NULL)
		return NULL;
	instance = calloc(1, sizeof(*instance) + id.len + 1);
	if (instance == NULL)
		return NULL;
	memcpy(instance->id, id.data, id.len);
	bucket = bucket_of(cd, id);
	instance->next = *bucket;
	*bucket = instance;
	TAILQ_INSERT_TAIL(&cd->instances, instance, entry);
	cd->instance_count++;
	return instance;
}

void kvw_cd_free_instance(struct kvw_cd *cd, struct kvw_cd_instance *instance)
{
	struct kvw_cd_instance **link = bucket_of(cd, kvw_slice_of(instance->id));

	while (*link != instance)
		link = &(*link)->next;
	*link = instance->next;
	TAILQ_REMOVE(&cd->instances, instance, entry);
	cd->instance_count--;
	if (cd->options.freed != NULL)
		cd->options.freed(cd->options.ctx, instance);
	free(instance->ip);
	free(instance->p2p_url);
	free(instance->metadata);
	free(instance->used.items);
	free(instance->declared.items);
	free(instance);
}

void kvw_cd_settle(struct kvw_cd *cd, struct kvw_cd_instance *instance)
{
	if (!instance->registered && !instance->has_cursor && !instance->declares &&
		!instance->recalled && instance->placements == 0)
		kvw_cd_free_instance(cd, instance);
}

/* --- membership ------------------------------------------------------------------------------- */

static bool copy_text(char **to, struct kvw_slice text)
{
	char *copy = malloc(text.len + 1);

	if (copy == NULL)
		return false;
	if (text.len > 0)
		memcpy(copy, text.data, text.len);
	copy[text.len] = '\0';
	free(*to);
	*to = copy;
	return true;
}

enum kvw_err kvw_cd_register(struct kvw_cd *cd, const struct kvw_cd_registration *registration,
	struct kvw_cd_instance **out, bool *again)
{
	struct kvw_cd_instance *instance = kvw_cd_take_instance(cd, registration->id);

	if (instance == NULL)
		return KVW_ELIMIT;
	if (!copy_text(&instance->ip, registration->ip) ||
		!copy_text(&instance->p2p_url, registration->p2p_url) ||
		!copy_text(&instance->metadata, registration->metadata)) {
		kvw_cd_settle(cd, instance);
		return KVW_ENOMEM;
	}
	*again = instance->registered;
	if (!*again)
		instance->came_ns = registration->now_ns;
	instance->registered = true;
	instance->http_port = registration->http_port;
	instance->mq_port = registration->mq_port;
	instance->registered_s = registration->wall_s;
	instance->beat_ns = instance->heard_ns = registration->now_ns;
	cd->counts.registered++;
	*out = instance;
	return KVW_OK;
}

bool kvw_cd_beat(struct kvw_cd *cd, struct kvw_slice id, int64_t now_ns)
{
	struct kvw_cd_instance *instance = kvw_cd_find_instance(cd, id);

	if (instance == NULL || !instance->registered)
		return false;
	instance->beat_ns = instance->heard_ns = now_ns;
	return true;
}

/* The instance's process is gone, and its L1 with it. */
static void drop(struct kvw_cd *cd, struct kvw_cd_instance *instance)
{
	instance->registered = false;
	kvw_cd_fence(cd, instance);
	instance->has_cursor = instance->gap = false;
}

void kvw_cd_leave(struct kvw_cd *cd, struct kvw_slice id)
{
	struct kvw_cd_instance *instance = kvw_cd_find_instance(cd, id);

	if (instance == NULL)
		return;
	cd->counts.left += instance->registered;
	drop(cd, instance);
	instance->declares = false;
	instance->declared.count = 0;
	kvw_cd_settle(cd, instance);
}

void kvw_cd_tick(struct kvw_cd *cd, int64_t timeout_ns, int64_t now_ns)
{
	struct kvw_cd_instance *instance, *next;

	for (instance = TAILQ_FIRST(&cd->instances); instance != NULL; instance = next) {
		bool late = instance->registered && now_ns - instance->beat_ns > timeout_ns;

		next = TAILQ_NEXT(instance, entry);
		if (late) {
			kvw_warn("coordinator",
				"instance=%s sends no heartbeats: its L1 is "
				"forgotten objects=%llu",
				instance->id, (unsigned long long)instance->l1_objects);
			cd->counts.timeouts++;
			drop(cd, instance);
		} else if (!instance->registered && now_ns - instance->heard_ns > SILENT_NS) {
			drop(cd, instance);
			kvw_cd_forget_l2(cd, instance);
			instance->declares = false;
			instance->declared.count = 0;
		}
		kvw_cd_settle(cd, instance);
	}
}
