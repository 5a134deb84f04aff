/*
 * secrets.c - memory for keys.
 *
 * Secrets have whole mappings and not memory from malloc: advice to the kernel covers pages, and a
 * heap's page holds other data, too. Refused advice is no error: advice makes a leak less likely,
 * but secrecy does not depend on it.
 */
#include "protect/secrets.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCK_BYTES (64u * 1024)

struct kvt_secret_block {
	struct kvt_secret_block *next;
	void *memory; /* BLOCK_BYTES of slots */
};

void *kvt_secret_map(size_t bytes)
{
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	madvise(memory, bytes, MADV_DONTDUMP);
	madvise(memory, bytes, MADV_WIPEONFORK);
	mlock(memory, bytes);
	return memory;
}

void kvt_secret_unmap(void *memory, size_t bytes)
{
	if (memory == NULL)
		return;
	OPENSSL_cleanse(memory, bytes);
	munmap(memory, bytes);
}

void kvt_secrets_init(struct kvt_secrets *s)
{
	*s = (struct kvt_secrets){0};
}

void kvt_secrets_finish(struct kvt_secrets *s)
{
	while (s->blocks != NULL) {
		struct kvt_secret_block *block = s->blocks;

		s->blocks = block->next;
		kvt_secret_unmap(block->memory, BLOCK_BYTES);
		free(block);
	}
	s->free = NULL;
}

static void push(struct kvt_secrets *s, uint8_t *slot)
{
	memcpy(slot, &s->free, sizeof(s->free));
	s->free = slot;
}

static bool add_block(struct kvt_secrets *s)
{
	struct kvt_secret_block *block = malloc(sizeof(*block));

	if (block == NULL)
		return false;
	block->memory = kvt_secret_map(BLOCK_BYTES);
	if (block->memory == NULL) {
		free(block);
		return false;
	}
	block->next = s->blocks;
	s->blocks = block;
	for (size_t at = BLOCK_BYTES; at > 0; at -= KVT_SECRET_BYTES)
		push(s, (uint8_t *)block->memory + at - KVT_SECRET_BYTES);
	return true;
}

uint8_t *kvt_secret_take(struct kvt_secrets *s)
{
	uint8_t *slot;

	if (s->free == NULL && !add_block(s))
		return NULL;
	slot = s->free;
	memcpy(&s->free, slot, sizeof(s->free));
	memset(slot, 0, KVT_SECRET_BYTES);
	return slot;
}

void kvt_secret_give(struct kvt_secrets *s, uint8_t *secret)
{
	if (secret == NULL)
		return;
	OPENSSL_cleanse(secret, KVT_SECRET_BYTES);
	push(s, secret);
}
