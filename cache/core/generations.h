/*
 * generations.h - names of chunks in lower tiers, made from a shared tier's table of generations
 * (chunk/slots.h).
 */
#ifndef KVT_GENERATIONS_H
#define KVT_GENERATIONS_H

#include "core/core.h"

struct kvt_barrier;

/* Called once all tiers are made: finds the tier that has a table, if any. KVT_ENOMEM. */
enum kvt_status kvt_generations_init(struct kvt *k) KVT_MUST_CHECK;
void kvt_generations_finish(struct kvt *k); /* nothing is under way */

/* --- without lock --- */

/* Waits up to timeout_ns until names are fresh (kvt_names_fresh). False: they are not. */
bool kvt_generations_await(struct kvt *k, uint64_t timeout_ns);

/* For kvtierd, whose clients use the same shared tier: answers their questions from what this
 * handle knows. KVT_BUSY: this handle knows no table yet, or may not read its disk now; KVT_MISS:
 * there is no shared table. kvt_table_raise gives a slot a new generation: KVT_OK, KVT_EIO. */
enum kvt_status kvt_table_read(struct kvt *k, struct kvt_table_ask *ask) KVT_MUST_CHECK;
/* erase.c */
enum kvt_status kvt_table_raise(struct kvt *k, uint32_t slot, uint64_t timeout_ns) KVT_MUST_CHECK;
/* Returns whether a shared tier keeps the table: such a tier is configured, and its settings allow
 * it. */
static inline bool kvt_table_is_shared(const struct kvt *k)
{
	return k->generations.home != NULL;
}

/* For kvtierd, which makes its own names from these numbers: the generations of n slots as this
 * handle knows the shared table; else 0. */
void kvt_table_numbers(struct kvt *k, const uint32_t *slots, size_t n, uint64_t *numbers);
/* Removes chunks whose keys have this slot from memory and from local tiers; returns how many. */
size_t kvt_slot_free(struct kvt *k, uint32_t slot);

/* --- under lock --- */

/* Gives a slot a new generation; kvt_barrier_raised(b) is called afterwards. tenant: the slot's
 * tenant, or NULL. False: out of memory, or too many questions wait, and kvt_barrier_raised is not
 * called. */
bool kvt_generations_raise(struct kvt *k, struct kvt_barrier *b, uint32_t slot,
	const struct kvt_tenant *tenant) KVT_MUST_CHECK;
/* Asks the table for changes. False: a question is under way already, or no tier or memory is
 * available. */
bool kvt_generations_ask(struct kvt *k);
/* Asks for changes when the time has come. *next_ns as in kvt_lower_tick. */
size_t kvt_generations_tick(struct kvt *k, int64_t now_ns, int64_t *next_ns);

#endif
