/*
 * account.h - counts the bytes that all threads together hold for clients, within a limit.
 *
 * A caller takes bytes (kvw_account_take) before it holds them; all takes together stay within the
 * limit. Bytes that the caller already holds are added (kvw_account_add) regardless of the limit,
 * and the next take counts them. Threads: any.
 */
#ifndef KVW_ACCOUNT_H
#define KVW_ACCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kvway/err.h"

struct kvw_account {
	/* Every request writes the next two members, so they have a cache line of their own. */
	char before[64];
	_Atomic uint64_t bytes;
	_Atomic uint64_t most;
	char after[64];
};

static inline void kvw_account_set_most(struct kvw_account *account, uint64_t bytes)
{
	atomic_store_explicit(&account->most, bytes, memory_order_relaxed);
}

static inline uint64_t kvw_account_bytes(const struct kvw_account *account)
{
	return atomic_load_explicit(&account->bytes, memory_order_relaxed);
}

/* Returns whether this many bytes would fit now, without taking them. */
static inline bool kvw_account_fits(const struct kvw_account *account, uint64_t bytes)
{
	return kvw_account_bytes(account) + bytes <=
	       atomic_load_explicit(&account->most, memory_order_relaxed);
}

static inline void kvw_account_add(struct kvw_account *account, uint64_t bytes)
{
	atomic_fetch_add_explicit(&account->bytes, bytes, memory_order_relaxed);
}

static inline void kvw_account_release(struct kvw_account *account, uint64_t bytes)
{
	atomic_fetch_sub_explicit(&account->bytes, bytes, memory_order_relaxed);
}

/* Changes the number of bytes that the caller holds in the account from *held to `now`; sets
 * *held. */
static inline void kvw_account_update(struct kvw_account *account, uint64_t *held, uint64_t now)
{
	if (now > *held)
		kvw_account_add(account, now - *held);
	else if (now < *held)
		kvw_account_release(account, *held - now);
	*held = now;
}

/* Takes bytes. The function adds them first and checks then, so that all threads together stay
 * within the limit. Returns false if they are refused; then nothing is taken. */
KVW_MUST_CHECK static inline bool kvw_account_take(struct kvw_account *account, uint64_t bytes)
{
	kvw_account_add(account, bytes);
	if (kvw_account_fits(account, 0))
		return true;
	kvw_account_release(account, bytes);
	return false;
}

#endif
