/*
 * redis_clean.c - removes values from Redis that are no longer readable.
 *
 * After an erase of a tenant, or of all, their values are unreadable, but there. This walks over
 * the keys of each server by SCAN, a page at a time, looks at each footer, and unlinks what was
 * written under an epoch that is known to be over. A page each tenth of a second, so that it costs
 * the server next to nothing; a TTL usually gets there first.
 *
 * In a Cluster a page is asked of the owner of a slot: one slot of each node, from CLUSTER SLOTS.
 * A node that left or came meanwhile is not walked; its values go by TTL.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiers/redis/redis_tier.h"

#define PAGE_NS    100000000
#define PAGE_LIMIT (256u * 1024)

static void page_came(struct redis_ask *ask);

void redis_clean_want(struct redis_tier *t)
{
	t->cleaning.wanted = true;
}

/* --- one value --------------------------------------------------------------------------------- */

static bool is_over(struct redis_tier *t, const struct redis_footer *f)
{
	const struct redis_tenant *all = &t->tenants.all;
	const struct redis_tenant *e;

	if (all->known && !all->failed && !all->raise && all->epoch != 0 && f->epoch != all->epoch)
		return true;
	e = redis_tenant_find(t, &f->tenant);
	return e != NULL && e->known && !e->failed && !e->raise && e->epoch != 0 &&
	       f->tenant_epoch != e->epoch;
}

static void looked(struct redis_ask *ask)
{
	struct redis_tier *t = ask->t;
	struct redis_footer f;

	if (redis_ask_status(ask) == KVT_OK && ask->command.reply == KVW_REDIS_BULK &&
		redis_footer_decode(ask->buffer, ask->command.bulk_bytes, &f) == KVT_OK &&
		redis_footer_is(&f, &t->fingerprint, &f.key) && is_over(t, &f)) {
		redis_drop(t, &f.key);
		t->cleaning.removed++;
	}
	redis_ask_free(ask);
	if (--t->cleaning.looks == 0)
		t->cleaning.under_way = false;
}

static void look(struct redis_tier *t, const struct kvw_redis_element *name)
{
	struct redis_ask *ask;
	struct kvt_key key;

	if (name->data == NULL || !redis_chunk_parse(&t->fingerprint, name->data, name->len, &key))
		return;
	ask = redis_ask_footer(t, &key);
	if (ask == NULL)
		return;
	t->cleaning.looks++;
	redis_ask_send(ask, looked, t, kvt_now(t->s) + (int64_t)t->deadline_ns);
}

/* --- pages ------------------------------------------------------------------------------------- */

static void end(struct redis_tier *t)
{
	struct redis_cleaning *c = &t->cleaning;

	c->running = c->under_way = false;
	if (c->removed > 0)
		kvt_note(t->s, KVT_LOG_INFO, "redis: removed %llu chunks that were erased",
			(unsigned long long)c->removed);
	c->removed = 0;
}

static void send_array(struct redis_tier *t, const struct redis_word *words, size_t count,
	uint32_t slot, void (*answered)(struct redis_ask *ask))
{
	struct redis_ask *ask = redis_ask_new(t, words, count, NULL, 0, 0);

	if (ask == NULL) {
		end(t);
		return;
	}
	ask->command.slot = slot;
	ask->command.elements = true;
	ask->command.element_limit = PAGE_LIMIT;
	t->cleaning.under_way = true;
	redis_ask_send(ask, answered, t, kvt_now(t->s) + (int64_t)t->deadline_ns);
}

static void send_page(struct redis_tier *t)
{
	struct redis_cleaning *c = &t->cleaning;
	char pattern[REDIS_KEY_ROOM];
	size_t len = redis_epoch_name(&t->fingerprint, NULL, pattern) - strlen("epoch");
	struct redis_word words[6] = {REDIS_WORD("SCAN"), {c->cursor, strlen(c->cursor)},
		REDIS_WORD("MATCH"), {pattern, len + 1}, REDIS_WORD("COUNT"), REDIS_WORD("100")};

	pattern[len] = '*';
	send_array(t, words, 6, c->slots[c->node], page_came);
}

static void page_came(struct redis_ask *ask)
{
	struct redis_tier *t = ask->t;
	struct redis_cleaning *c = &t->cleaning;
	const struct kvw_redis_command *command = &ask->command;
	const struct kvw_redis_element *cursor = command->found;

	if (redis_ask_status(ask) != KVT_OK || command->reply != KVW_REDIS_ARRAY ||
		command->element_count == 0 || cursor->data == NULL ||
		cursor->len >= sizeof(c->cursor)) {
		end(t); /* the TTL has to do it */
		redis_ask_free(ask);
		return;
	}
	memcpy(c->cursor, cursor->data, cursor->len + 1);
	c->looks = 1; /* so that it does not end while it begins */
	for (size_t i = 1; i < command->element_count; i++)
		look(t, &command->found[i]);
	if (strcmp(c->cursor, "0") == 0)
		c->node++;
	redis_ask_free(ask);
	if (--c->looks == 0)
		c->under_way = false;
}

/* --- nodes ------------------------------------------------------------------------------------- */

/* CLUSTER SLOTS: for each range its first and last slot (depth 2), then nodes, the master first
 * (depth 3: address, port, id, ...). Keeps one slot for each master. */
static void nodes_came(struct redis_ask *ask)
{
	struct redis_tier *t = ask->t;
	struct redis_cleaning *c = &t->cleaning;
	const struct kvw_redis_command *command = &ask->command;
	const char *ids[REDIS_NODES];

	c->under_way = false;
	for (size_t i = 0; redis_ask_status(ask) == KVT_OK && i + 4 < command->element_count; i++) {
		const struct kvw_redis_element *e = &command->found[i];
		const char *id = e[4].data;
		bool known = false;

		if (e[0].depth != 2 || e[1].depth != 2 || e[2].depth != 3 || id == NULL ||
			e[0].data == NULL)
			continue;
		for (uint32_t j = 0; j < c->nodes; j++)
			known = known || strcmp(ids[j], id) == 0;
		if (known || c->nodes == REDIS_NODES)
			continue;
		ids[c->nodes] = id;
		c->slots[c->nodes++] = (uint32_t)strtoul(e[0].data, NULL, 10) % KVW_REDIS_SLOTS;
	}
	redis_ask_free(ask);
}

static void find_nodes(struct redis_tier *t)
{
	struct redis_cleaning *c = &t->cleaning;
	struct redis_word words[2] = {REDIS_WORD("CLUSTER"), REDIS_WORD("SLOTS")};

	c->nodes = c->node = 0;
	memcpy(c->cursor, "0", 2);
	if (t->cluster) {
		send_array(t, words, 2, KVW_REDIS_ANY_SLOT, nodes_came);
		return;
	}
	c->slots[0] = KVW_REDIS_ANY_SLOT;
	c->nodes = 1;
}

size_t redis_clean_step(struct redis_tier *t, int64_t now_ns, int64_t *next_ns)
{
	struct redis_cleaning *c = &t->cleaning;

	if ((!c->running && !c->wanted) || c->under_way)
		return 0;
	if (now_ns < c->again_ns) {
		if (c->again_ns < *next_ns)
			*next_ns = c->again_ns;
		return 0;
	}
	c->again_ns = now_ns + PAGE_NS;
	if (!c->running) {
		c->wanted = false;
		c->running = true;
		find_nodes(t);
	} else if (c->node >= c->nodes) {
		end(t);
	} else {
		send_page(t);
	}
	return 1;
}
