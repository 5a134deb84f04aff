/*
 * pins.c - see pins.h: a chained hash table of fixed room.
 */
#include "feeds/coordinator/directory_parts.h"

#include <stdlib.h>
#include <string.h>

#define ROOM 65536u

struct kvw_ce_key kvw_cd_pin_key(const struct kvw_cd_pin *pin)
{
	const char *model = pin->text + pin->hash_len;

	return (struct kvw_ce_key){.hash = {pin->text, pin->hash_len},
		.model = {model, pin->model_len},
		.salt = {model + pin->model_len, pin->salt_len},
		.rank = pin->rank};
}

static bool is_pin_of(const struct kvw_cd_pin *pin, const struct kvw_ce_key *key)
{
	struct kvw_ce_key own = kvw_cd_pin_key(pin);

	return own.rank == key->rank && kvw_slice_equal(own.hash, key->hash) &&
	       kvw_slice_equal(own.model, key->model) && kvw_slice_equal(own.salt, key->salt);
}

/* The hash of its pin. */
static uint64_t hash_of(const struct kvw_cd *cd, const struct kvw_ce_key *key)
{
	struct kvw_ce_key first = *key;

	first.group = 0;
	return kvw_cd_key_hash(cd, &first);
}

/* The link to the pin; to NULL: there is none. NULL: there are no pins at all. */
static struct kvw_cd_pin **find_link(const struct kvw_cd *cd, const struct kvw_ce_key *key)
{
	uint64_t hash = hash_of(cd, key);
	struct kvw_cd_pin **link;

	if (cd->pins.table == NULL)
		return NULL;
	link = &cd->pins.table[hash & (ROOM - 1)];
	while (*link != NULL && ((*link)->hash != hash || !is_pin_of(*link, key)))
		link = &(*link)->next;
	return link;
}

static struct kvw_cd_pin *make_pin(const struct kvw_cd *cd, const struct kvw_ce_key *key)
{
	struct kvw_cd_pin *pin =
		calloc(1, sizeof(*pin) + key->hash.len + key->model.len + key->salt.len);

	if (pin == NULL)
		return NULL;
	pin->hash = hash_of(cd, key);
	pin->rank = key->rank;
	pin->hash_len = (uint8_t)key->hash.len;
	pin->model_len = (uint16_t)key->model.len;
	pin->salt_len = (uint16_t)key->salt.len;
	memcpy(pin->text, key->hash.data, key->hash.len);
	memcpy(pin->text + key->hash.len, key->model.data, key->model.len);
	if (key->salt.len > 0)
		memcpy(pin->text + key->hash.len + key->model.len, key->salt.data, key->salt.len);
	return pin;
}

enum kvw_err kvw_cd_pin(struct kvw_cd *cd, const struct kvw_ce_key *key, uint64_t count)
{
	struct kvw_cd_pin **link, *pin;

	if (cd->pins.table == NULL)
		cd->pins.table = calloc(ROOM, sizeof(struct kvw_cd_pin *));
	link = find_link(cd, key);
	if (link == NULL)
		return KVW_ENOMEM;
	if (*link == NULL) {
		if (cd->pins.count == KVW_CD_PINS)
			return KVW_ELIMIT;
		pin = make_pin(cd, key);
		if (pin == NULL)
			return KVW_ENOMEM;
		*link = pin;
		TAILQ_INSERT_TAIL(&cd->pins.list, pin, entry);
		cd->pins.count++;
	}
	(*link)->count += count;
	return KVW_OK;
}

static void remove_pin(struct kvw_cd *cd, struct kvw_cd_pin **link)
{
	struct kvw_cd_pin *pin = *link;

	*link = pin->next;
	TAILQ_REMOVE(&cd->pins.list, pin, entry);
	cd->pins.count--;
	free(pin);
}

void kvw_cd_unpin(struct kvw_cd *cd, const struct kvw_ce_key *key)
{
	struct kvw_cd_pin **link = find_link(cd, key);

	if (link != NULL && *link != NULL && --(*link)->count == 0)
		remove_pin(cd, link);
}

void kvw_cd_drop_pins(struct kvw_cd *cd, const struct kvw_ce_key *key)
{
	struct kvw_cd_pin **link = find_link(cd, key);

	if (link != NULL && *link != NULL)
		remove_pin(cd, link);
}

bool kvw_cd_is_pinned(const struct kvw_cd *cd, const struct kvw_ce_key *key)
{
	struct kvw_cd_pin **link = find_link(cd, key);

	return link != NULL && *link != NULL;
}

void kvw_cd_free_pins(struct kvw_cd *cd)
{
	struct kvw_cd_pin *pin;

	while ((pin = TAILQ_FIRST(&cd->pins.list)) != NULL) {
		TAILQ_REMOVE(&cd->pins.list, pin, entry);
		free(pin);
	}
	free(cd->pins.table);
}
