/* table.c - the counts of each key, tenant and model that has limits, by name. */
#include "rates/table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define PARTS  64
#define CHAINS 1024 /* of each part */

struct part {
	_Alignas(64) pthread_mutex_t lock;
	struct kvw_rate_subject **chains; /* [CHAINS]; NULL: this part is not used yet */
	size_t count;
};

struct kvw_rate_table {
	struct part parts[PARTS];
	_Atomic size_t count;
	_Atomic uint64_t day; /* last counted day */
	size_t part_most;
};

struct kvw_rate_table *kvw_rate_table_create(size_t most)
{
	struct kvw_rate_table *table = aligned_alloc(64, sizeof(*table));

	if (table == NULL)
		return NULL;
	memset(table, 0, sizeof(*table));
	table->part_most = most / PARTS;
	for (size_t i = 0; i < PARTS; i++)
		pthread_mutex_init(&table->parts[i].lock, NULL);
	return table;
}

void kvw_rate_table_destroy(struct kvw_rate_table *table)
{
	if (table == NULL)
		return;
	for (size_t i = 0; i < PARTS; i++) {
		struct part *part = &table->parts[i];

		for (size_t k = 0; part->chains != NULL && k < CHAINS; k++) {
			struct kvw_rate_subject *subject;

			while ((subject = part->chains[k]) != NULL) {
				part->chains[k] = subject->next;
				free(subject);
			}
		}
		free((void *)part->chains);
		pthread_mutex_destroy(&part->lock);
	}
	free(table);
}

static bool is_full(struct kvw_rate_subject *subject, int64_t now_ns, uint64_t today)
{
	return kvw_bucket_debt_ns(&subject->requests, now_ns) == 0 &&
	       kvw_bucket_debt_ns(&subject->tokens, now_ns) == 0 &&
	       kvw_day_used(&subject->day, today) == 0;
}

/* Frees all idle subjects, or, if there are none, the first one that no request holds. The lock is
 * held. */
static void make_room(
	struct kvw_rate_table *table, struct part *part, int64_t now_ns, uint64_t today)
{
	size_t before = part->count;

	for (int hard = 0; hard < 2 && part->count == before; hard++)
		for (size_t k = 0; k < CHAINS; k++)
			for (struct kvw_rate_subject **link = &part->chains[k]; *link != NULL;) {
				struct kvw_rate_subject *subject = *link;

				if (atomic_load_explicit(&subject->users, memory_order_acquire) >
						0 ||
					(hard ? part->count < before
					      : !is_full(subject, now_ns, today))) {
					link = &subject->next;
					continue;
				}
				*link = subject->next;
				free(subject);
				part->count--;
				atomic_fetch_sub_explicit(&table->count, 1, memory_order_relaxed);
			}
}

static struct kvw_rate_subject *make_subject(
	enum kvw_rate_kind kind, struct kvw_slice name, uint64_t hash)
{
	struct kvw_rate_subject *subject = calloc(1, sizeof(*subject) + name.len + 1);

	if (subject == NULL)
		return NULL;
	subject->kind = kind;
	subject->hash = hash;
	subject->name_len = name.len;
	memcpy(subject->name, name.data, name.len);
	return subject;
}

/* Lock held. */
static struct kvw_rate_subject *find_subject(
	const struct part *part, enum kvw_rate_kind kind, struct kvw_slice name, uint64_t hash)
{
	struct kvw_rate_subject *subject =
		part->chains == NULL ? NULL : part->chains[hash / PARTS % CHAINS];

	while (subject != NULL &&
		(subject->hash != hash || subject->kind != kind ||
			!kvw_slice_equal(
				(struct kvw_slice){subject->name, subject->name_len}, name)))
		subject = subject->next;
	return subject;
}

/* Lock held. */
static struct kvw_rate_subject *find_or_make(struct kvw_rate_table *table, struct part *part,
	enum kvw_rate_kind kind, struct kvw_slice name, uint64_t hash, int64_t now_ns,
	uint64_t today)
{
	struct kvw_rate_subject **chain, *subject;

	if (part->chains == NULL)
		part->chains = (struct kvw_rate_subject **)calloc(CHAINS, sizeof(*part->chains));
	if (part->chains == NULL)
		return NULL;
	subject = find_subject(part, kind, name, hash);
	if (subject != NULL)
		return subject;
	chain = &part->chains[hash / PARTS % CHAINS];
	if (part->count >= table->part_most)
		make_room(table, part, now_ns, today);
	subject = make_subject(kind, name, hash);
	if (subject == NULL)
		return NULL;
	subject->next = *chain;
	*chain = subject;
	part->count++;
	atomic_fetch_add_explicit(&table->count, 1, memory_order_relaxed);
	return subject;
}

struct kvw_rate_subject *kvw_rate_table_hold(struct kvw_rate_table *table, enum kvw_rate_kind kind,
	struct kvw_slice name, int64_t now_ns, uint64_t today)
{
	uint64_t hash = XXH3_64bits_withSeed(name.data, name.len, kind);
	struct part *part = &table->parts[hash % PARTS];
	struct kvw_rate_subject *subject;

	pthread_mutex_lock(&part->lock);
	subject = find_or_make(table, part, kind, name, hash, now_ns, today);
	if (subject != NULL)
		atomic_fetch_add_explicit(&subject->users, 1, memory_order_relaxed);
	pthread_mutex_unlock(&part->lock);
	return subject;
}

struct kvw_rate_subject *kvw_rate_table_find(
	struct kvw_rate_table *table, enum kvw_rate_kind kind, struct kvw_slice name)
{
	uint64_t hash = XXH3_64bits_withSeed(name.data, name.len, kind);
	struct part *part = &table->parts[hash % PARTS];
	struct kvw_rate_subject *subject;

	pthread_mutex_lock(&part->lock);
	subject = find_subject(part, kind, name, hash);
	if (subject != NULL)
		atomic_fetch_add_explicit(&subject->users, 1, memory_order_relaxed);
	pthread_mutex_unlock(&part->lock);
	return subject;
}

void kvw_rate_subject_put(struct kvw_rate_subject *subject)
{
	atomic_fetch_sub_explicit(&subject->users, 1, memory_order_release);
}

void kvw_rate_table_each(struct kvw_rate_table *table,
	void (*fn)(void *arg, struct kvw_rate_subject *subject), void *arg)
{
	for (size_t i = 0; i < PARTS; i++) {
		struct part *part = &table->parts[i];

		pthread_mutex_lock(&part->lock);
		for (size_t k = 0; part->chains != NULL && k < CHAINS; k++)
			for (struct kvw_rate_subject *s = part->chains[k]; s != NULL; s = s->next)
				fn(arg, s);
		pthread_mutex_unlock(&part->lock);
	}
}

uint64_t kvw_rate_table_day(struct kvw_rate_table *table, uint64_t today)
{
	uint64_t last = atomic_load_explicit(&table->day, memory_order_relaxed);

	if (last == today || last == today + 1)
		return last;
	atomic_store_explicit(&table->day, today, memory_order_relaxed);
	return today;
}

bool kvw_rate_table_some(struct kvw_rate_table *table, size_t *cursor,
	void (*fn)(void *arg, struct kvw_rate_subject *subject), void *arg)
{
	struct part *part = &table->parts[*cursor / CHAINS];

	pthread_mutex_lock(&part->lock);
	if (part->chains == NULL)
		*cursor += CHAINS - 1; /* skips the rest of an unused part */
	else
		for (struct kvw_rate_subject *s = part->chains[*cursor % CHAINS]; s != NULL;
			s = s->next)
			fn(arg, s);
	pthread_mutex_unlock(&part->lock);
	++*cursor;
	return *cursor < (size_t)PARTS * CHAINS;
}

size_t kvw_rate_table_count(const struct kvw_rate_table *table)
{
	return atomic_load_explicit(&table->count, memory_order_relaxed);
}
