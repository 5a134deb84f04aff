/*
 * salts.c - see salts.h.
 */
#include "feeds/coordinator/directory_parts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* --- salts ------------------------------------------------------------------------------------ */

static size_t bucket_of(const struct kvw_cd *cd, struct kvw_slice text)
{
	return kvw_cd_hash(cd, text) & (sizeof(cd->salts.table) / sizeof(cd->salts.table[0]) - 1);
}

struct kvw_cd_salt *kvw_cd_find_salt(const struct kvw_cd *cd, struct kvw_slice text)
{
	struct kvw_cd_salt *found = cd->salts.table[bucket_of(cd, text)];

	while (found != NULL && !kvw_slice_equal((struct kvw_slice){found->text, found->len}, text))
		found = found->next;
	return found;
}

struct kvw_cd_salt *kvw_cd_take_salt(struct kvw_cd *cd, struct kvw_slice text)
{
	struct kvw_cd_salt *salt = kvw_cd_find_salt(cd, text), **bucket;

	if (salt != NULL || cd->salts.count == KVW_CD_SALTS)
		return salt;
	salt = calloc(1, sizeof(*salt) + text.len);
	if (salt == NULL)
		return NULL;
	salt->len = (uint16_t)text.len;
	if (text.len > 0)
		memcpy(salt->text, text.data, text.len);
	TAILQ_INIT(&salt->l2);
	bucket = &cd->salts.table[bucket_of(cd, text)];
	salt->next = *bucket;
	*bucket = salt;
	TAILQ_INSERT_TAIL(&cd->salts.list, salt, entry);
	cd->salts.count++;
	return salt;
}

void kvw_cd_settle_salt(struct kvw_cd *cd, struct kvw_cd_salt *salt)
{
	struct kvw_cd_salt **link;

	if (salt->objects > 0 || salt->limited)
		return;
	link = &cd->salts.table[bucket_of(cd, (struct kvw_slice){salt->text, salt->len})];
	while (*link != salt)
		link = &(*link)->next;
	*link = salt->next;
	TAILQ_REMOVE(&cd->salts.list, salt, entry);
	cd->salts.count--;
	free(salt);
}

enum kvw_err kvw_cd_set_quota(struct kvw_cd *cd, struct kvw_slice text, uint64_t bytes)
{
	struct kvw_cd_salt *salt = kvw_cd_take_salt(cd, text);

	if (salt == NULL)
		return KVW_ELIMIT;
	cd->salts.limited += !salt->limited;
	salt->limited = true;
	salt->limit = bytes;
	return KVW_OK;
}

bool kvw_cd_drop_quota(struct kvw_cd *cd, struct kvw_slice text)
{
	struct kvw_cd_salt *salt = kvw_cd_find_salt(cd, text);

	if (salt == NULL || !salt->limited)
		return false;
	salt->limited = false;
	salt->limit = 0;
	cd->salts.limited--;
	kvw_cd_settle_salt(cd, salt);
	return true;
}

void kvw_cd_free_salts(struct kvw_cd *cd)
{
	struct kvw_cd_salt *salt;

	while ((salt = TAILQ_FIRST(&cd->salts.list)) != NULL) {
		salt->limited = false;
		kvw_cd_settle_salt(cd, salt);
	}
}

/* --- entries of L2 ---------------------------------------------------------------------------- */

static void leave_lists(struct kvw_cd *cd, struct kvw_cd_l2 *l2)
{
	struct kvw_cd_salts *salts = &cd->salts;

	if (salts->touched == l2)
		salts->touched = NULL;
	if (l2->asked == NULL) {
		TAILQ_REMOVE(&l2->object->salt->l2, l2, of_salt);
		TAILQ_REMOVE(&salts->all, l2, of_all);
		return;
	}
	TAILQ_REMOVE(&salts->asked, l2, of_all);
	salts->asked_bytes -= l2->asked_bytes;
	if (l2->asked->shared)
		salts->asked_shared -= l2->asked_bytes;
	l2->object->salt->asked_bytes -= l2->asked_bytes;
	l2->asked = NULL;
	l2->asked_bytes = 0;
}

static void join_first(struct kvw_cd *cd, struct kvw_cd_l2 *l2)
{
	TAILQ_INSERT_HEAD(&l2->object->salt->l2, l2, of_salt);
	TAILQ_INSERT_HEAD(&cd->salts.all, l2, of_all);
}

/* Joins the lists' ends, but before the entry of the same batch. */
static void join_last(struct kvw_cd *cd, struct kvw_cd_l2 *l2)
{
	struct kvw_cd_l2 *later = cd->salts.touched;

	if (later != NULL && later->object->salt == l2->object->salt)
		TAILQ_INSERT_BEFORE(later, l2, of_salt);
	else
		TAILQ_INSERT_TAIL(&l2->object->salt->l2, l2, of_salt);
	if (later != NULL)
		TAILQ_INSERT_BEFORE(later, l2, of_all);
	else
		TAILQ_INSERT_TAIL(&cd->salts.all, l2, of_all);
	cd->salts.touched = l2;
}

bool kvw_cd_l2_add(struct kvw_cd *cd, struct kvw_cd_object *object)
{
	struct kvw_cd_l2 *l2 = object->l2;

	if (l2 == NULL) {
		l2 = calloc(1, sizeof(*l2));
		if (l2 == NULL)
			return false;
		l2->object = object;
		object->l2 = l2;
		cd->bytes += sizeof(*l2);
		join_last(cd, l2);
	}
	l2->placements++;
	return true;
}

void kvw_cd_l2_remove(struct kvw_cd *cd, struct kvw_cd_placement *placement)
{
	struct kvw_cd_l2 *l2 = placement->object->l2;

	if (l2->asked == placement) {
		cd->counts.evicted++;
		cd->counts.evicted_bytes += placement->size_bytes;
		kvw_cd_l2_unask(cd, l2);
	}
	if (--l2->placements > 0)
		return;
	leave_lists(cd, l2);
	placement->object->l2 = NULL;
	cd->bytes -= sizeof(*l2);
	free(l2);
}

void kvw_cd_l2_touch(struct kvw_cd *cd, struct kvw_cd_object *object, bool stored)
{
	struct kvw_cd_l2 *l2 = object->l2;

	if (l2 == NULL || (l2->asked != NULL && !stored))
		return;
	if (stored)
		l2->answers = 0;
	leave_lists(cd, l2);
	join_last(cd, l2);
}

void kvw_cd_l2_age(struct kvw_cd *cd, struct kvw_cd_l2 *l2)
{
	leave_lists(cd, l2);
	join_first(cd, l2);
}

void kvw_cd_l2_ask(struct kvw_cd *cd, struct kvw_cd_placement *placement, int64_t now_ns)
{
	struct kvw_cd_l2 *l2 = placement->object->l2;

	assert(l2->asked == NULL);
	leave_lists(cd, l2);
	l2->asked = placement;
	l2->asked_ns = now_ns;
	l2->plan = cd->salts.plan;
	l2->asked_bytes = placement->size_bytes;
	TAILQ_INSERT_TAIL(&cd->salts.asked, l2, of_all);
	cd->salts.asked_bytes += l2->asked_bytes;
	if (placement->shared)
		cd->salts.asked_shared += l2->asked_bytes;
	l2->object->salt->asked_bytes += l2->asked_bytes;
}

void kvw_cd_l2_unask(struct kvw_cd *cd, struct kvw_cd_l2 *l2)
{
	leave_lists(cd, l2);
	join_first(cd, l2);
}

void kvw_cd_l2_turn(struct kvw_cd *cd, struct kvw_cd_l2 *l2, bool of_salt)
{
	if (of_salt) {
		TAILQ_REMOVE(&l2->object->salt->l2, l2, of_salt);
		TAILQ_INSERT_TAIL(&l2->object->salt->l2, l2, of_salt);
	} else {
		TAILQ_REMOVE(&cd->salts.all, l2, of_all);
		TAILQ_INSERT_TAIL(&cd->salts.all, l2, of_all);
	}
}
