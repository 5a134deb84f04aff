/*
 * generations.h - names of chunks below memory, by a shared tier's table of generations (chunk/slots.h).
 */
#ifndef KVT_GENERATIONS_H
#define KVT_GENERATIONS_H

#include "core/core.h"

struct kvt_barrier;

/* Once all tiers are made: the one that has a table, if any. KVT_ENOMEM. */
enum kvt_status kvt_generations_init(struct kvt *k) KVT_MUST_CHECK;
void kvt_generations_finish(struct kvt *k); /* nothing is under way */

/* --- without lock --- */

/* Waits until names are fresh (kvt_names_fresh), up to timeout_ns. False: they are not. */
bool kvt_generations_await(struct kvt *k, uint64_t timeout_ns);

/* For kvtierd, whose clients share the tier that it shares: answers their questions by what this
 * handle knows. KVT_BUSY: it knows nothing yet, or may not read its disk by it now; KVT_MISS: there
 * is no shared table. And a slot gets another generation: KVT_OK, KVT_EIO. */
enum kvt_status kvt_table_read(struct kvt *k, struct kvt_table_ask *ask) KVT_MUST_CHECK;
enum kvt_status kvt_table_raise(struct kvt *k, uint32_t slot, uint64_t timeout_ns) KVT_MUST_CHECK; /* erase.c */
/* Whether a shared tier keeps the table: there is one, and its settings let it be used. */
static inline bool kvt_table_is_shared(const struct kvt *k)
{
	return k->generations.home != NULL;
}

/* For kvtierd, which makes names of its own of these: the numbers of n slots, as far as this handle knows the shared
 * table; else 0. */
void kvt_table_numbers(struct kvt *k, const uint32_t *slots, size_t n, uint64_t *numbers);
/* What keys with this tenant's slot have in memory and in tiers of this handle's own leaves; returns how much. */
size_t kvt_slot_free(struct kvt *k, uint32_t slot);

/* --- under lock --- */

/* A slot gets another generation; kvt_barrier_raised(b) follows. tenant: whose it is, or NULL.
 * False: no memory, or too many wait, and nothing follows. */
bool kvt_generations_raise(struct kvt *k, struct kvt_barrier *b, uint32_t slot,
	const struct kvt_tenant *tenant) KVT_MUST_CHECK;
/* Asks the table for changes. False: it is being asked, or there is no tier or memory for it now. */
bool kvt_generations_ask(struct kvt *k);
/* Asks for changes when that is due. *next_ns as kvt_lower_tick. */
size_t kvt_generations_tick(struct kvt *k, int64_t now_ns, int64_t *next_ns);

#endif
