/*
 * member.c - an entry of the lists that make up the fleet: what each source says about a worker,
 * and the worker's places in the fleet.
 */
#include "fleet/member.h"

#include <stdlib.h>

#include "base/clock.h"

const char *kvw_member_source_name(enum kvw_member_source source)
{
	static const char *const names[KVW_SOURCE_COUNT] = {
		"config", "file", "admin", "dns", "kubernetes"};

	return names[source];
}

uint64_t kvw_member_listing_unreadable_s(const struct kvw_member_listing *listing, int64_t now_ns)
{
	int64_t ns = now_ns - atomic_load(&listing->unreadable_since_ns);

	if (!atomic_load(&listing->unreadable))
		return 0;
	return ns < KVW_NS_PER_S ? 1 : (uint64_t)(ns / KVW_NS_PER_S);
}

void kvw_member_destroy(struct kvw_member *member)
{
	for (int s = 0; s < KVW_SOURCE_COUNT; s++)
		kvw_worker_config_release(&member->said[s]);
	free(member->url);
	free(member);
}

enum kvw_member_source kvw_member_lister(const struct kvw_member *member)
{
	int s = 0;

	while (s < KVW_SOURCE_COUNT && member->said[s].url == NULL)
		s++;
	return (enum kvw_member_source)s;
}

const struct kvw_worker_config *kvw_member_wanted(const struct kvw_member *member)
{
	enum kvw_member_source source = kvw_member_lister(member);

	return member->removed || source == KVW_SOURCE_COUNT ? NULL : &member->said[source];
}

bool kvw_member_rests(const struct kvw_member *member, size_t at)
{
	return (member->rests >> at & 1) != 0;
}

enum kvw_err kvw_member_say(struct kvw_member *member, enum kvw_member_source source,
	const struct kvw_worker_config *config)
{
	struct kvw_worker_config copy;
	enum kvw_err err;

	if (member->said[source].url != NULL &&
		kvw_worker_config_equal(&member->said[source], config))
		return KVW_OK;
	err = kvw_worker_config_copy(config, &copy);
	if (err != KVW_OK)
		return err;
	kvw_worker_config_release(&member->said[source]);
	member->said[source] = copy;
	return KVW_OK;
}

size_t kvw_member_rows(const struct kvw_member *member)
{
	size_t rows = 1;

	while (rows < KVW_RANKS_MOST && member->places[rows] != NULL)
		rows++;
	return rows;
}

bool kvw_member_believes(struct kvw_member *member, uint32_t ranks)
{
	if (ranks < member->seen_ranks && ++member->fewer_ranks < 3)
		return false;
	member->fewer_ranks = 0;
	return true;
}
