/*
 * keep.c - see keep.h.
 */
#include "feeds/coordinator/keep.h"

#include <stdlib.h>
#include <string.h>

#include "feeds/coordinator/directory_parts.h"

#define TOKENS_MOST ((KVW_KEPT_MOST - 256) / sizeof(uint32_t)) /* in a record */

/* Each is followed by its texts, one after the other. */
struct quota_record {
	uint64_t limit;
	uint16_t salt_len;
	uint8_t is_default, unused[5];
};

struct pin_record {
	uint64_t count;
	uint32_t rank;
	uint16_t model_len, salt_len;
	uint8_t hash_len, unused[7];
};

struct server_record {
	double registered_s;
	uint64_t restarts, incarnation, seq, stored_since, named, unnamed;
	uint16_t http_port, mq_port;
	uint8_t registered, reports, has_cursor, gap, incomplete, l2_known, unused[2];
	uint16_t id_len, ip_len, p2p_len, metadata_len, unused_too[2];
};

struct capacity_record {
	uint64_t incarnation, revision, bytes;
	uint8_t tier, shared, backend_len, unused[5];
};

struct tokens_record {
	int64_t offset;
	uint32_t count;
	uint8_t hash_len, unused[3];
};

struct placement_record {
	uint64_t incarnation, size_bytes, accesses;
	uint32_t server, rank, group;
	uint16_t model_len, salt_len;
	uint8_t hash_len, backend_len, tier, shared, unused[4];
};

_Static_assert(sizeof(struct quota_record) == 16 && sizeof(struct pin_record) == 24 &&
		       sizeof(struct server_record) == 80 && sizeof(struct capacity_record) == 32 &&
		       sizeof(struct tokens_record) == 16 && sizeof(struct placement_record) == 48,
	"no gaps");

/* --- writing ---------------------------------------------------------------------------------- */

/* Writes a record of its head and up to four texts. */
static enum kvw_err put(const struct kvw_keep_out *out, enum kvw_keep_kind kind, const void *head,
	size_t head_len, const struct kvw_slice texts[4])
{
	char record[KVW_KEPT_MOST];
	size_t len = head_len;

	memcpy(record, head, head_len);
	for (size_t i = 0; i < 4; i++) {
		if (texts[i].len > sizeof(record) - len)
			return KVW_ELIMIT;
		if (texts[i].len > 0)
			memcpy(record + len, texts[i].data, texts[i].len);
		len += texts[i].len;
	}
	return out->put(out->arg, kind, record, len);
}

static enum kvw_err keep_wishes(const struct kvw_cd *cd, const struct kvw_keep_out *out)
{
	struct quota_record common = {.limit = cd->salts.default_limit, .is_default = 1};
	const struct kvw_cd_salt *salt;
	const struct kvw_cd_pin *pin;
	enum kvw_err err = KVW_OK;

	if (cd->salts.has_default)
		err = put(out, KVW_KEPT_QUOTA, &common, sizeof(common),
			(const struct kvw_slice[4]){{"", 0}});
	TAILQ_FOREACH(salt, &cd->salts.list, entry)
	{
		struct quota_record head = {.limit = salt->limit, .salt_len = salt->len};

		if (salt->limited && err == KVW_OK)
			err = put(out, KVW_KEPT_QUOTA, &head, sizeof(head),
				(const struct kvw_slice[4]){{salt->text, salt->len}});
	}
	TAILQ_FOREACH(pin, &cd->pins.list, entry)
	{
		struct kvw_ce_key key = kvw_cd_pin_key(pin);
		struct pin_record head = {.count = pin->count,
			.rank = pin->rank,
			.hash_len = pin->hash_len,
			.model_len = pin->model_len,
			.salt_len = pin->salt_len};

		if (err == KVW_OK)
			err = put(out, KVW_KEPT_PIN, &head, sizeof(head),
				(const struct kvw_slice[4]){key.hash, key.model, key.salt});
	}
	return err;
}

static enum kvw_err keep_server(const struct kvw_cd *cd, const struct kvw_cd_instance *instance,
	const struct kvw_keep_out *out)
{
	struct kvw_slice id = kvw_slice_of(instance->id), ip = kvw_slice_of(instance->ip);
	struct kvw_slice p2p = kvw_slice_of(instance->p2p_url);
	struct kvw_slice metadata = kvw_slice_of(instance->metadata);
	struct server_record head = {.registered_s = instance->registered_s,
		.restarts = instance->restarts,
		.incarnation = instance->incarnation,
		.seq = instance->seq,
		.stored_since = instance->stored_since,
		.named = instance->named,
		.unnamed = instance->unnamed,
		.http_port = instance->http_port,
		.mq_port = instance->mq_port,
		.registered = instance->registered,
		.reports = instance->reports,
		.has_cursor = instance->has_cursor,
		.gap = instance->gap,
		.incomplete = instance->incomplete,
		.l2_known = instance->l2_known,
		.id_len = (uint16_t)id.len,
		.ip_len = (uint16_t)ip.len,
		.p2p_len = (uint16_t)p2p.len};
	enum kvw_err err;

	if (metadata.len > KVW_KEPT_MOST / 2) /* hints that kvway does not use */
		metadata = KVW_SLICE("{}");
	head.metadata_len = (uint16_t)metadata.len;
	err = put(out, KVW_KEPT_SERVER, &head, sizeof(head),
		(const struct kvw_slice[4]){id, ip, p2p, metadata});
	for (uint32_t i = 0; err == KVW_OK && instance->declares && i < instance->declared.count;
		i++) {
		const struct kvw_cd_module *module = &instance->declared.items[i];
		struct kvw_slice backend = kvw_slice_of(cd->backends[module->backend]);
		struct capacity_record capacity = {.incarnation = instance->declared_incarnation,
			.revision = instance->declared_revision,
			.bytes = module->bytes,
			.tier = (uint8_t)module->tier,
			.shared = module->shared,
			.backend_len = (uint8_t)backend.len};

		err = put(out, KVW_KEPT_CAPACITY, &capacity, sizeof(capacity),
			(const struct kvw_slice[4]){backend});
	}
	return err;
}

/* The tokens of a chunk hash. More than a record holds are not kept: chunks of more than 4,032
 * tokens are known again once they are stored again. */
static enum kvw_err keep_tokens(
	const struct kvw_cd_binding *binding, const struct kvw_keep_out *out)
{
	struct tokens_record head = {
		.offset = binding->offset, .count = binding->token_count, .hash_len = binding->len};

	if (binding->token_count == 0 || binding->token_count > TOKENS_MOST)
		return KVW_OK;
	return put(out, KVW_KEPT_TOKENS, &head, sizeof(head),
		(const struct kvw_slice[4]){{binding->text, binding->len},
			{(const char *)binding->tokens, binding->token_count * sizeof(uint32_t)}});
}

static enum kvw_err keep_object(
	const struct kvw_cd *cd, const struct kvw_cd_object *object, const struct kvw_keep_out *out)
{
	struct kvw_ce_key key = kvw_cd_key_of(object);
	const struct kvw_cd_placement *at;
	enum kvw_err err = KVW_OK;

	if (LIST_FIRST(&object->binding->objects) == object)
		err = keep_tokens(object->binding, out);
	STAILQ_FOREACH(at, &object->placements, entry)
	{
		struct kvw_slice backend = kvw_slice_of(cd->backends[at->backend]);
		struct placement_record head = {.incarnation = at->incarnation,
			.size_bytes = at->size_bytes,
			.accesses = object->accesses,
			.server = at->instance->kept_as,
			.rank = object->rank,
			.group = object->group,
			.model_len = object->model_len,
			.salt_len = object->salt_len,
			.hash_len = object->binding->len,
			.backend_len = (uint8_t)backend.len,
			.tier = (uint8_t)at->tier,
			.shared = at->shared};

		if (err == KVW_OK)
			err = put(out, KVW_KEPT_PLACEMENT, &head, sizeof(head),
				(const struct kvw_slice[4]){
					key.hash, key.model, key.salt, backend});
	}
	return err;
}

enum kvw_err kvw_cd_keep(struct kvw_cd *cd, const struct kvw_keep_out *out)
{
	enum kvw_err err = keep_wishes(cd, out);
	struct kvw_cd_instance *instance;
	const struct kvw_cd_object *object;
	const struct kvw_cd_l2 *l2;
	uint32_t count = 0;

	TAILQ_FOREACH(instance, &cd->instances, entry)
	{
		instance->kept_as = count++;
		if (err == KVW_OK)
			err = keep_server(cd, instance, out);
	}
	TAILQ_FOREACH(object, &cd->objects, entry)
	if (err == KVW_OK && object->l2 == NULL)
		err = keep_object(cd, object, out);
	/* Objects in L2 come in the order of their use. */
	TAILQ_FOREACH(l2, &cd->salts.asked, of_all)
	if (err == KVW_OK)
		err = keep_object(cd, l2->object, out);
	TAILQ_FOREACH(l2, &cd->salts.all, of_all)
	if (err == KVW_OK)
		err = keep_object(cd, l2->object, out);
	return err;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* A record that is being read. */
struct cursor {
	const uint8_t *at;
	size_t left;
};

static bool take_head(struct cursor *cursor, void *head, size_t len)
{
	if (cursor->left < len)
		return false;
	memcpy(head, cursor->at, len);
	cursor->at += len;
	cursor->left -= len;
	return true;
}

static bool take_text(struct cursor *cursor, size_t len, size_t most, struct kvw_slice *text)
{
	*text = (struct kvw_slice){(const char *)cursor->at, len};
	if (len > most || len > cursor->left)
		return false;
	cursor->at += len;
	cursor->left -= len;
	return true;
}

static bool is_plain(struct kvw_slice text)
{
	return memchr(text.data, '\0', text.len) == NULL;
}

static bool recall_quota(struct kvw_cd *cd, struct cursor *cursor)
{
	struct quota_record head;
	struct kvw_slice salt;

	if (!take_head(cursor, &head, sizeof(head)) ||
		!take_text(cursor, head.salt_len, KVW_CE_SALT_MOST, &salt))
		return false;
	if (!head.is_default)
		return kvw_cd_set_quota(cd, salt, head.limit) == KVW_OK;
	cd->salts.has_default = true;
	cd->salts.default_limit = head.limit;
	return true;
}

static bool recall_pin(struct kvw_cd *cd, struct cursor *cursor)
{
	struct pin_record head;
	struct kvw_ce_key key = {0};

	if (!take_head(cursor, &head, sizeof(head)) ||
		!take_text(cursor, head.hash_len, KVW_CE_HASH_MOST, &key.hash) ||
		!take_text(cursor, head.model_len, KVW_CE_MODEL_MOST, &key.model) ||
		!take_text(cursor, head.salt_len, KVW_CE_SALT_MOST, &key.salt) || head.count == 0)
		return false;
	key.rank = head.rank;
	return kvw_cd_pin(cd, &key, head.count) == KVW_OK;
}

/* A server of this name is there already if it has registered meanwhile: that is newer. */
static bool recall_server(
	struct kvw_cd *cd, struct kvw_cd_recall *recall, struct cursor *cursor, int64_t now_ns)
{
	struct kvw_cd_registration registration = {.now_ns = now_ns};
	struct kvw_cd_instance *instance, **servers;
	struct server_record head;
	bool again;

	if (!take_head(cursor, &head, sizeof(head)) ||
		!take_text(cursor, head.id_len, KVW_CE_INSTANCE_MOST, &registration.id) ||
		!take_text(cursor, head.ip_len, 1024, &registration.ip) ||
		!take_text(cursor, head.p2p_len, 1024, &registration.p2p_url) ||
		!take_text(cursor, head.metadata_len, KVW_KEPT_MOST, &registration.metadata) ||
		registration.id.len == 0 || !is_plain(registration.id) ||
		!is_plain(registration.ip) || !is_plain(registration.p2p_url) ||
		!is_plain(registration.metadata))
		return false;
	servers = realloc(recall->servers, (recall->count + 1) * sizeof(*servers));
	if (servers == NULL)
		return false;
	recall->servers = servers;
	instance = kvw_cd_take_instance(cd, registration.id);
	if (instance == NULL || instance->registered || instance->has_cursor)
		return false;
	registration.http_port = head.http_port;
	registration.mq_port = head.mq_port;
	registration.wall_s = head.registered_s;
	if (head.registered && kvw_cd_register(cd, &registration, &instance, &again) != KVW_OK)
		return false;
	instance->heard_ns = now_ns;
	instance->restarts = head.restarts;
	instance->incarnation = head.incarnation;
	instance->seq = head.seq;
	instance->stored_since = head.stored_since;
	instance->named = head.named;
	instance->unnamed = head.unnamed;
	instance->reports = head.reports;
	instance->has_cursor = head.has_cursor;
	instance->gap = head.gap;
	instance->incomplete = head.incomplete;
	instance->l2_known = head.l2_known;
	servers[recall->count++] = instance;
	return true;
}

static bool recall_capacity(
	struct kvw_cd *cd, const struct kvw_cd_recall *recall, struct cursor *cursor)
{
	struct kvw_ce_batch batch = {.type = KVW_CE_CONFIG};
	struct capacity_record head;

	if (recall->count == 0 || !take_head(cursor, &head, sizeof(head)) ||
		!take_text(cursor, head.backend_len, KVW_CE_BACKEND_MOST, &batch.backend) ||
		head.tier >= KVW_CE_TIERS)
		return false;
	batch.incarnation = head.incarnation;
	batch.capacity_revision = head.revision;
	batch.capacity_bytes = head.bytes;
	batch.tier = (enum kvw_ce_tier)head.tier;
	batch.shared = head.shared;
	kvw_cd_batch_end(cd, recall->servers[recall->count - 1], &batch);
	return true;
}

static bool recall_tokens(struct kvw_cd_recall *recall, struct cursor *cursor)
{
	struct tokens_record head;
	struct kvw_slice hash, tokens;

	if (!take_head(cursor, &head, sizeof(head)) ||
		!take_text(cursor, head.hash_len, KVW_CE_HASH_MOST, &hash) ||
		head.count > KVW_CE_TOKENS_MOST ||
		!take_text(cursor, head.count * sizeof(uint32_t), sizeof(recall->tokens), &tokens))
		return false;
	memcpy(recall->hash, hash.data, hash.len);
	recall->hash_len = head.hash_len;
	recall->offset = head.offset;
	recall->token_count = head.count;
	memcpy(recall->tokens, tokens.data, tokens.len);
	return true;
}

static bool recall_placement(struct kvw_cd *cd, struct kvw_cd_recall *recall, struct cursor *cursor)
{
	struct kvw_cd_instance *instance;
	struct kvw_ce_batch batch = {.type = KVW_CE_STORE};
	struct kvw_ce_entry entry = {.offset = -1};
	struct placement_record head;
	uint64_t named, unnamed, stored;
	struct kvw_cd_object *object;

	if (!take_head(cursor, &head, sizeof(head)) ||
		!take_text(cursor, head.hash_len, KVW_CE_HASH_MOST, &entry.key.hash) ||
		!take_text(cursor, head.model_len, KVW_CE_MODEL_MOST, &entry.key.model) ||
		!take_text(cursor, head.salt_len, KVW_CE_SALT_MOST, &entry.key.salt) ||
		!take_text(cursor, head.backend_len, KVW_CE_BACKEND_MOST, &batch.backend) ||
		head.server >= recall->count || head.tier >= KVW_CE_TIERS)
		return false;
	instance = recall->servers[head.server];
	entry.key.rank = head.rank;
	entry.key.group = head.group;
	entry.size_bytes = head.size_bytes;
	if (kvw_slice_equal(entry.key.hash, (struct kvw_slice){recall->hash, recall->hash_len})) {
		entry.tokens = recall->tokens;
		entry.token_count = recall->token_count;
		entry.offset = recall->offset;
	}
	batch.incarnation = head.incarnation;
	batch.tier = (enum kvw_ce_tier)head.tier;
	batch.shared = head.shared;
	named = instance->named;
	unnamed = instance->unnamed;
	stored = instance->stored_since;
	cd->salts.touched = NULL;
	kvw_cd_store(cd, instance, &batch, &entry);
	instance->named = named;
	instance->unnamed = unnamed;
	instance->stored_since = stored;
	object = kvw_cd_find(cd, &entry.key);
	if (object != NULL)
		object->accesses = head.accesses;
	recall->placements++;
	return true;
}

void kvw_cd_recall(struct kvw_cd *cd, struct kvw_cd_recall *recall, enum kvw_keep_kind kind,
	const uint8_t *record, size_t len, int64_t now_ns)
{
	struct cursor cursor = {record, len};
	bool fine = true;

	if (recall->failed)
		return;
	if (kind == KVW_KEPT_QUOTA)
		fine = recall_quota(cd, &cursor);
	else if (kind == KVW_KEPT_PIN)
		fine = recall_pin(cd, &cursor);
	else if (kind == KVW_KEPT_SERVER)
		fine = recall_server(cd, recall, &cursor, now_ns);
	else if (kind == KVW_KEPT_CAPACITY)
		fine = recall_capacity(cd, recall, &cursor);
	else if (kind == KVW_KEPT_TOKENS)
		fine = recall_tokens(recall, &cursor);
	else if (kind == KVW_KEPT_PLACEMENT)
		fine = recall_placement(cd, recall, &cursor);
	recall->failed = !fine;
}

void kvw_cd_recalled(struct kvw_cd *cd, struct kvw_cd_recall *recall, bool all_came)
{
	struct kvw_cd_instance *instance, *next;

	for (uint32_t i = 0; i < recall->count && (recall->failed || !all_came); i++)
		recall->servers[i]->incomplete = true;
	free(recall->servers);
	recall->servers = NULL;
	recall->count = 0;
	for (instance = TAILQ_FIRST(&cd->instances); instance != NULL; instance = next) {
		next = TAILQ_NEXT(instance, entry);
		kvw_cd_settle(cd, instance);
	}
}
